"""Paths and values of the ZooKeeper nodes that consumers use, except registrations.

Offsets are decimal text, the next offset to read; owner nodes name a consumer and its thread. Values of others are read
tolerantly: an unreadable one counts as no member, topic or broker. An unreadable offset raises, because no position may
be guessed.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import ClientError, ConfigError

CONSUMERS: Final = "/consumers"
BROKERS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
_LEGAL_GROUP: Final = re.compile(r"[a-zA-Z0-9._-]+")
_DECIMAL: Final = re.compile(rb"[0-9]{1,19}")


def check_group(group: str) -> None:
    """Raise ConfigError for a group id that Java's consumers reject: it must be usable as a node name."""
    if not _LEGAL_GROUP.fullmatch(group) or group in (".", ".."):
        raise ConfigError(
            f"group id {group!r} cannot be used with ZooKeeper; use letters, digits, '.', '_' and '-' only"
        )


def group_path(group: str) -> str:
    return f"{CONSUMERS}/{group}"


def ids_path(group: str) -> str:
    return f"{CONSUMERS}/{group}/ids"


def owners_path(group: str, topic: str | None = None) -> str:
    """The parent of the owners of one topic's partitions, or of all topics'."""
    return f"{CONSUMERS}/{group}/owners" + (f"/{topic}" if topic is not None else "")


def owner_path(group: str, partition: TopicPartition) -> str:
    """The ephemeral node of a partition's owner."""
    return f"{owners_path(group, partition.topic)}/{partition.partition}"


def offsets_path(group: str, topic: str | None = None) -> str:
    """The parent of a group's offsets in one topic, or in all."""
    return f"{CONSUMERS}/{group}/offsets" + (f"/{topic}" if topic is not None else "")


def offset_path(group: str, partition: TopicPartition) -> str:
    return f"{offsets_path(group, partition.topic)}/{partition.partition}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def offset_value(offset: int) -> bytes:
    return str(offset).encode()


def read_offset(path: str, value: bytes) -> int:
    """Raises ClientError for any other value."""
    if not _DECIMAL.fullmatch(value):
        raise ClientError(
            f"node {path} holds {value[:100]!r}, which is not an offset; delete the node or write a number there"
        )
    return int(value)


def read_topic(topic: str, value: bytes) -> list[TopicPartition]:
    """The partitions of a topic in numeric order; empty if the node cannot be read."""
    partitions = _object(value).get("partitions")
    names = partitions if isinstance(partitions, dict) else {}
    numbers = sorted(int(name) for name in names if name.isascii() and name.isdigit() and len(name) < 10)
    return [TopicPartition(TopicName(topic), number) for number in numbers]


class RegisteredBroker(NamedTuple):
    """A broker's registration: one listener's address, and the version of the JSON."""

    host: str
    port: int
    version: int

    @property
    def knows_versions(self) -> bool:
        """True if the broker supports ApiVersions (KIP-35): registrations of 0.8 have version 1, of 0.9 version 2."""
        return self.version >= _FIRST_WITH_API_VERSIONS


_FIRST_WITH_API_VERSIONS: Final = 3


def read_broker(value: bytes, protocol: str = "PLAINTEXT") -> RegisteredBroker | None:
    """A broker's first listener of a security protocol; None if it has none or the node cannot be read."""
    facts = _object(value)
    version, endpoints = facts.get("version"), facts.get("endpoints")
    version = version if isinstance(version, int) else 1
    if not isinstance(endpoints, list):
        host, port = facts.get("host"), facts.get("port")
        plain = protocol == "PLAINTEXT" and isinstance(host, str) and isinstance(port, int)
        return RegisteredBroker(str(host), int(port or 0), version) if plain else None
    protocols = facts.get("listener_security_protocol_map")
    by_name = protocols if isinstance(protocols, dict) else {}
    for endpoint in map(str, endpoints):
        name, _, address = endpoint.partition("://")
        host, _, port = address.rpartition(":")
        if by_name.get(name, name) == protocol and port.isascii() and port.isdigit():
            return RegisteredBroker(host.removeprefix("[").removesuffix("]"), int(port), version)
    return None


def _object(value: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
