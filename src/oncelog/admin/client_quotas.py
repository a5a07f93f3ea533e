"""Lists and changes the quotas of users, client ids and addresses on any cluster (KIP-546).

An entity is one to two parts of a kind and a name: a user, a client id, both, or an address (``ip``). The name None is
the default of the kind: it applies to all that have no entry of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from oncelog.client.programs import Cluster, Program, operation, raise_for_error
from oncelog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from oncelog.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

__all__ = ["QuotaRow", "alter_quotas", "list_quotas", "quotas_of"]

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_KINDS: Final = (USER, CLIENT_ID, IP)
QUOTAS: Final[Mapping[str, str]] = {
    "producer_byte_rate": "bytes a second that may be produced, at each broker",
    "consumer_byte_rate": "bytes a second that may be fetched, at each broker",
    "request_percentage": "percent of the time of one request handler thread, at each broker",
    "controller_mutation_rate": "partitions a second that may be created or deleted",
    "connection_creation_rate": "connections a second from an address, at each broker",
}
"""Keys and units; ``connection_creation_rate`` is the only one of addresses."""
Entity = tuple[tuple[str, str | None], ...]
_EXACT, _DEFAULT, _ANY = 0, 1, 2


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """The quotas of one entity itself, without inherited ones. ``values`` are by key, in the units of ``QUOTAS``."""

    entity: Entity
    values: Mapping[str, float]


@operation
def list_quotas(cluster: Cluster, kind: str | None = None) -> Program[list[QuotaRow]]:
    """The entities with quotas, or those with a part of ``kind``, by entity. Raises BrokerRefused."""
    components = [] if kind is None else [ComponentData(entity_type=kind, match_type=_ANY, match=None)]
    return (yield from _described(cluster, components, strict=False))


@operation
def quotas_of(cluster: Cluster, entity: Entity) -> Program[Mapping[str, float]]:
    """The quotas of exactly this entity; empty if it has none. Raises BrokerRefused."""
    components = [
        ComponentData(entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name)
        for kind, name in entity
    ]
    rows = yield from _described(cluster, components, strict=True)
    return next((row.values for row in rows if set(row.entity) == set(entity)), {})


def _described(cluster: Cluster, components: list[ComponentData], *, strict: bool) -> Program[list[QuotaRow]]:
    request = DescribeClientQuotasRequest(components=components, strict=strict)

    def attempt() -> Program[list[QuotaRow]]:
        response = yield from cluster.request(request)
        raise_for_error(response, "quotas")
        rows = [
            QuotaRow(
                tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)),
                {value.key: value.value for value in sorted(entry.values, key=lambda value: value.key)},
            )
            for entry in response.entries or ()
        ]
        return sorted(rows, key=_order)

    return (yield from cluster.retrying(attempt))


def _order(row: QuotaRow) -> list[tuple[str, bool, str]]:
    # Names of None cannot be compared with others: defaults come first.
    return [(kind, name is not None, name or "") for kind, name in row.entity]


@operation
def alter_quotas(
    cluster: Cluster,
    entity: Entity,
    change: Mapping[str, float] | None = None,
    delete: Iterable[str] = (),
    *,
    validate_only: bool = False,
) -> Program[None]:
    """Set the quotas in ``change`` and remove those in ``delete``; the entity's others stay. Raises BrokerRefused."""
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    operations = [OpData(key=key, value=value) for key, value in (change or {}).items()]
    operations += [OpData(key=key, remove=True) for key in delete]
    request = AlterClientQuotasRequest(entries=[EntryData(entity=parts, ops=operations)], validate_only=validate_only)

    def attempt() -> Program[None]:
        response = yield from cluster.request(request, broker="controller")
        for result in response.entries:
            raise_for_error(result, f"quotas of {entity_text(entity)}")

    yield from cluster.retrying(attempt)


def entity_text(entity: Entity) -> str:
    """The entity for people, such as "user 'ann', client-id default"."""
    return ", ".join(f"{kind} {'default' if name is None else repr(name)}" for kind, name in entity)
