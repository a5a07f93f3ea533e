"""DescribeClientQuotas and AlterClientQuotas: what may be set for whom, what is refused and how, every filter."""

from __future__ import annotations

import math
import time
from typing import Final

from oncelog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from oncelog.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tests.peers.clients.sweep.wire import Sweep, Wire, versions

_EXACT, _DEFAULT, _SPECIFIED, _UNHEARD_OF = 0, 1, 2, 9
_SETTLED_S: Final = 0.6
"""Apache Kafka's image follows its log a moment later."""

Named = tuple[str, str | None]
Op = tuple[str, float | None]


def _entry(entity: list[Named], *ops: Op) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )


def _alter(wire: Wire, version: int, *entries: EntryData, validate_only: bool = False) -> None:
    wire.call(AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only), version)
    if not validate_only:
        time.sleep(_SETTLED_S)


def _describe(wire: Wire, version: int, *components: tuple[str, int, str | None], strict: bool = False) -> None:
    datas = [ComponentData(entity_type=kind, match_type=match, match=name) for kind, match, name in components]
    wire.call(DescribeClientQuotasRequest(components=datas, strict=strict), version)


_USER: Final[list[Named]] = [("user", "sx-u")]
_VALID: Final = (
    _entry(_USER, ("producer_byte_rate", 1024.0), ("request_percentage", 12.5)),
    _entry([("user", None)], ("consumer_byte_rate", 1e7)),
    _entry([("client-id", "sx-c")], ("controller_mutation_rate", 0.25)),
    _entry([("client-id", None)], ("producer_byte_rate", 2.0**53)),
    _entry([("user", "CN=a b,O=*/+~ü"), ("client-id", "<default>")], ("consumer_byte_rate", 3.0)),
    _entry([("client-id", None), ("user", "sx-u")], ("consumer_byte_rate", 4.0)),
    _entry([("user", None), ("client-id", None)], ("consumer_byte_rate", 5.0)),
    _entry([("ip", "10.1.2.3")], ("connection_creation_rate", 7.0)),
    _entry([("ip", None)], ("connection_creation_rate", 1e9)),
)
_REFUSED: Final = (
    _entry([]),
    _entry([("user", "")], ("producer_byte_rate", 1.0)),
    _entry([("user", ""), ("client-id", "")], ("producer_byte_rate", 1.0)),
    _entry([("group", "g")], ("producer_byte_rate", 1.0)),
    _entry([("ip", "10.1.2.3"), ("user", "u")], ("connection_creation_rate", 1.0)),
    _entry([("ip", "not an address")], ("connection_creation_rate", 1.0)),
    _entry([("ip", "10.9.9.9")], ("producer_byte_rate", 1.0)),
    _entry([("ip", "10.9.9.8")], ("connection_creation_rate", 2.0**31)),
    _entry([("ip", "10.9.9.7")], ("connection_creation_rate", 1.5)),
    _entry([("user", "a")], ("unheard_of", 1.0)),
    _entry([("user", "b")], ("connection_creation_rate", 1.0)),
    _entry([("user", "c")], ("producer_byte_rate", 0.0)),
    _entry([("user", "d")], ("request_percentage", -1.0)),
    _entry([("user", "e")], ("consumer_byte_rate", 1.5)),
    _entry([("user", "f")], ("consumer_byte_rate", 1e19)),
    _entry([("user", "g")], ("consumer_byte_rate", 1.0), ("consumer_byte_rate", 2.0)),
    _entry([("user", "h")], ("unheard_of", None)),
    _entry([("user", "i")], ("SCRAM-SHA-256", 1.0)),
    _entry([("user", "j"), ("user", "k")], ("consumer_byte_rate", 6.0)),
    _entry([("user", "l")], ("request_percentage", math.inf)),
)


def _alter_client_quotas(wire: Wire) -> None:
    for version in versions(AlterClientQuotasRequest):
        _alter(wire, version)
        _alter(wire, version, *_VALID, validate_only=True)
        _describe(wire, version)
        _alter(wire, version, *_VALID)
        _describe(wire, version)
        _alter(wire, version, *_REFUSED, validate_only=True)
        for refused in _REFUSED:
            _alter(wire, version, refused)
        _describe(wire, version)
        twice = [("user", "sx-t"), ("client-id", None)]
        _alter(wire, version, _entry(twice, ("producer_byte_rate", 8.0)), _entry(twice, ("producer_byte_rate", 9.0)))
        _describe(wire, version, ("user", _EXACT, "sx-t"))
        _alter(wire, version, _entry(_USER, ("producer_byte_rate", None), ("request_percentage", 13.0)))
        _alter(wire, version, _entry([("user", "nobody")], ("producer_byte_rate", None)))
        _alter(
            wire,
            version,
            _entry([("user", "CN=a b,O=*/+~ü"), ("client-id", "<default>")], ("consumer_byte_rate", None)),
        )
        _describe(wire, version)


def _describe_client_quotas(wire: Wire) -> None:
    _alter(wire, 1, *_VALID)
    time.sleep(2)
    for version in versions(DescribeClientQuotasRequest):
        for strict in (False, True):
            for components in (
                [],
                [("user", _EXACT, "sx-u")],
                [("user", _EXACT, "nobody")],
                [("user", _EXACT, "")],
                [("user", _DEFAULT, None)],
                [("user", _SPECIFIED, None)],
                [("client-id", _SPECIFIED, None)],
                [("user", _SPECIFIED, None), ("client-id", _SPECIFIED, None)],
                [("user", _EXACT, "sx-u"), ("client-id", _DEFAULT, None)],
                [("client-id", _EXACT, "<default>")],
                [("ip", _SPECIFIED, None)],
                [("ip", _DEFAULT, None)],
                [("ip", _EXACT, "10.1.2.3")],
                [("ip", _EXACT, "10.1.2.3"), ("user", _EXACT, "u")],
                [("user", _EXACT, None)],
                [("user", _DEFAULT, "u")],
                [("user", _SPECIFIED, "u")],
                [("user", _UNHEARD_OF, None)],
                [("", _SPECIFIED, None)],
                [("group", _SPECIFIED, None)],
                [("user", _SPECIFIED, None), ("user", _EXACT, "u")],
            ):
                _describe(wire, version, *components, strict=strict)


SWEEPS: Final[dict[str, Sweep]] = {
    "alter-client-quotas": _alter_client_quotas,
    "describe-client-quotas": _describe_client_quotas,
}
