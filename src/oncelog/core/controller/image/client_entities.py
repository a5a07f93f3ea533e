"""Users, client ids and addresses with configs of their own: quotas (KIP-13, 55, 257, 612) and SCRAM credentials.

Nodes and sanitised names are Apache Kafka's in ZooKeeper (docs/quotas.md, "Storage"). The default entity is
``<default>``, which a sanitised name cannot be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

from oncelog.core.controller.image import layout
from oncelog.core.controller.image.model import ConfigImage

DEFAULT: Final = ""
"""Name of a type's default entity. Apache Kafka refuses empty names for others."""
DEFAULT_NODE: Final = "<default>"
CLIENTS: Final = "clients"


class ClientEntity(NamedTuple):
    """A user, a client id, a user's client id or an address. None: not of this type; ``""``: the type's default."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


ClientEntities = Mapping[ClientEntity, ConfigImage]


def sanitise(name: str) -> str:
    """Percent-encode all but letters, digits and ``.-_``, like Apache Kafka's ``Sanitizer``."""
    # Apache Kafka leaves "." and ".." unencoded, so it cannot store them.
    return layout.node_name(name).replace("~", "%7E")


def desanitise(text: str) -> str:
    return unquote(text)


def entity_path(entity: ClientEntity) -> str:
    if entity.ip is not None:
        return f"{layout.IP_CONFIGS}/{_node_name(entity.ip)}"
    if entity.user is None:
        return f"{layout.CLIENT_CONFIGS}/{_node_name(entity.client_id or DEFAULT)}"
    user = f"{layout.USER_CONFIGS}/{_node_name(entity.user)}"
    return user if entity.client_id is None else f"{user}/{CLIENTS}/{_node_name(entity.client_id)}"


def entity_at(path: str) -> ClientEntity | None:
    """The entity with configs at ``path``; None for other paths."""
    parts = path.split("/")
    if parts[:2] != ["", "config"]:
        return None
    if len(parts) == 4:
        kind, name = parts[2], _name_of(parts[3])
        if kind == "users":
            return ClientEntity(user=name)
        if kind == CLIENTS:
            return ClientEntity(client_id=name)
        # Other kinds under /config belong to topics, brokers and groups.
        return ClientEntity(ip=name) if kind == "ips" else None
    if len(parts) == 6 and parts[2] == "users" and parts[4] == CLIENTS:
        return ClientEntity(_name_of(parts[3]), _name_of(parts[5]))
    return None


def _node_name(name: str) -> str:
    return sanitise(name) if name else DEFAULT_NODE


def _name_of(node: str) -> str:
    return DEFAULT if node == DEFAULT_NODE else desanitise(node)
