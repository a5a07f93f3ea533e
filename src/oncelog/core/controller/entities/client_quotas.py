"""Decisions about client quotas (KIP-546): validates and applies alterations, and filters entities.

Messages and the order of checks are those of Apache Kafka 4.3's controller.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.units import INT32_MAX, INT64_MAX
from oncelog.core.configs.kinds import canonical
from oncelog.core.controller.entities.entity_writes import write_entities
from oncelog.core.controller.image.client_entities import DEFAULT, ClientEntity
from oncelog.core.controller.image.cluster_image import ClusterImage, configs_of
from oncelog.core.controller.outcomes import Decided, Refusal, Refused

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_TYPES: Final = (CLIENT_ID, USER, IP)
"""Entity types, in the order of Apache Kafka's maps."""

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"


class _Kind(NamedTuple):
    """Any number if ``largest`` is None, else whole numbers up to it; ``name`` is for messages."""

    largest: int | None = None
    name: str = ""


_CLIENT_KEYS: Final[Mapping[str, _Kind]] = {
    PRODUCER_BYTE_RATE: _Kind(INT64_MAX, "a LONG"),
    CONSUMER_BYTE_RATE: _Kind(INT64_MAX, "a LONG"),
    REQUEST_PERCENTAGE: _Kind(),
    CONTROLLER_MUTATION_RATE: _Kind(),
}
_IP_KEYS: Final[Mapping[str, _Kind]] = {CONNECTION_CREATION_RATE: _Kind(INT32_MAX, "an INT")}
QUOTA_KEYS: Final = frozenset({*_CLIENT_KEYS, *_IP_KEYS})
"""Config keys that are quotas; a user's other keys are credentials."""
_NO_FRACTION: Final = 1e-6

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Types and names as in a request, each type once; the name None is the default."""


class QuotaAlteration(NamedTuple):
    """None removes a quota."""

    entity: QuotaEntity
    changes: Sequence[tuple[str, float | None]]


def quota_entity(named: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of a request, in Apache Kafka's order; of each type the last name counts."""
    by_type = dict(named)
    ordered = [(kind, by_type.pop(kind)) for kind in _TYPES if kind in by_type]
    return (*ordered, *by_type.items())


def alter_client_quotas(image: ClusterImage, alterations: Sequence[QuotaAlteration]) -> Decided[None]:
    """Decide each alteration; a refused one does not affect the others. Entities must differ."""
    altered: dict[ClientEntity, Mapping[str, str]] = {}
    outcomes: list[Refusal | None] = []
    for alteration in alterations:
        try:
            entity, keys = _checked(alteration.entity)
            altered[entity] = _altered(configs_of(image, entity), keys, alteration.changes)
        except Refused as refused:
            outcomes.append(refused.refusal)
            continue
        outcomes.append(None)
    return Decided(write_entities(image, altered), outcomes)


def duplicate_refusal(entity: QuotaEntity) -> Refusal:
    entries = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return Refusal(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity ClientQuotaEntity(entries={{{entries}}})")


def quotas_of(configs: Mapping[str, str]) -> Mapping[str, float]:
    return MappingProxyType({key: float(text) for key, text in configs.items() if key in QUOTA_KEYS})


def address_text(address: str) -> str:
    """An address in canonical form; other texts (the default) unchanged."""
    try:
        return str(ip_address(address))
    except ValueError:
        return address


def _checked(entity: QuotaEntity) -> tuple[ClientEntity, Mapping[str, _Kind]]:
    """The entity and its permitted keys. Raises Refused."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in _TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    names = {kind: DEFAULT if name is None else name for kind, name in entity}
    if IP not in names:
        return ClientEntity(names.get(USER), names.get(CLIENT_ID)), _CLIENT_KEYS
    if len(names) > 1:
        raise _invalid("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    address = names[IP]
    if address != DEFAULT and not _is_address(address):
        raise _invalid(f"{address} is not a valid IP or resolvable host.")
    return ClientEntity(ip=address), _IP_KEYS


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _altered(
    configs: Mapping[str, str], keys: Mapping[str, _Kind], changes: Sequence[tuple[str, float | None]]
) -> Mapping[str, str]:
    after = dict(configs)
    for key, value in changes:
        if value is None:
            # Only quotas: a user's SCRAM credentials are in the same node.
            after.pop(key if key in QUOTA_KEYS else "", None)
        else:
            _check_value(keys, key, value)
            after[key] = _text(value)
    return after


def _check_value(keys: Mapping[str, _Kind], key: str, value: float) -> None:
    kind = keys.get(key)
    if kind is None:
        raise _invalid(f"Invalid configuration key {key}")
    if not math.isfinite(value):
        raise _invalid(f"Quota {key} must be a finite number")
    if value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if kind.largest is None:
        return
    if value > kind.largest:
        raise _invalid(f"Proposed value for {key} is too large for {kind.name}.")
    if abs(value % 1) > _NO_FRACTION:
        raise _invalid(f"{key} cannot be a fractional value.")


def _text(value: float) -> str:
    """A whole number is stored without a fraction, as Apache Kafka's tools show it."""
    if value < INT64_MAX and value == int(value):
        return str(int(value))
    return canonical(value) or ""


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)


class MatchType:
    """How a filter component matches names, with the codes of the protocol."""

    EXACT: Final = 0
    DEFAULT: Final = 1
    SPECIFIED: Final = 2


class QuotaFilter(NamedTuple):
    """Matches entities that have each type, with the given name (None: the default) or any name."""

    exact: Mapping[str, str | None]
    any_name: frozenset[str]
    strict: bool
    """Excludes entities with further types."""

    def matches(self, entity: QuotaEntity) -> bool:
        names = dict(entity)
        if self.strict and len(names) != len(self.exact) + len(self.any_name):
            return False
        exact = all(kind in names and names[kind] == name for kind, name in self.exact.items())
        return exact and all(kind in names for kind in self.any_name)


def quota_filter(components: Sequence[tuple[str, int, str | None]], *, strict: bool) -> QuotaFilter:
    """The filter of a request with components (entity type, match type, name). Raises Refused."""
    exact: dict[str, str | None] = {}
    any_name: set[str] = set()
    for kind, match_type, name in components:
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in exact or kind in any_name:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in _TYPES:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if match_type == MatchType.EXACT:
            if name is None:
                raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            exact[kind] = name
            continue
        word = {MatchType.DEFAULT: "DEFAULT", MatchType.SPECIFIED: "SPECIFIED"}.get(match_type)
        if word is None:
            raise _invalid(f"Unknown match type {match_type}")
        if name is not None:
            raise _invalid(f"Request specified MATCH_TYPE_{word}, but also specified a match string.")
        if match_type == MatchType.DEFAULT:
            exact[kind] = None
        else:
            any_name.add(kind)
    types = any_name.union(exact)
    if IP in types and len(types) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component."
        )
    return QuotaFilter(exact, frozenset(any_name), strict)


def matching_quotas(image: ClusterImage, quota_filter_: QuotaFilter) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
    """The matching entities and their quotas, ordered by name."""
    matches = []
    for entity, configs in image.client_entities.items():
        quotas = quotas_of(configs.configs)
        named = _named(entity)
        if quotas and quota_filter_.matches(named):
            matches.append((named, quotas))
    return sorted(matches, key=lambda match: [(kind, name or "") for kind, name in match[0]])


def _named(entity: ClientEntity) -> QuotaEntity:
    names = zip(_TYPES, (entity.client_id, entity.user, entity.ip), strict=True)
    return tuple((kind, name or None) for kind, name in names if name is not None)
