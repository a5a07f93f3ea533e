"""The audit record of an administrative end of a transaction: one line of JSON. Not an API.

It is made where the decision is made, is complete, and is written by the runtime
(``docs/internals/hanging-transactions.md`` lists the fields).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from oncelog.base.text import shortened

PARTITIONS_NAMED: Final = 100
"""Partitions that a record names; the others are only counted."""
# Peers choose names, and the log has a bound.
NAME_LENGTH: Final = 512
"""Longest name in a record; of a longer one the beginning and a digest."""
ABORT_HANGING: Final = "abort-hanging"
"""The action of markers with a start offset: an administrator's conditional abort."""
WRITE_MARKERS: Final = "write-markers"
"""The action of markers without a start offset, as Apache Kafka's own tools send them."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Value = str | int | bool | None | Sequence[str] | Mapping[str, "Value"] | Sequence[Mapping[str, "Value"]]


@dataclass(frozen=True, slots=True)
class AuditRecord:
    time_ms: int
    action: str
    who: Mapping[str, Value]
    transaction: Mapping[str, Value]
    checked: Sequence[str]
    """The conditions that were checked, in words."""
    outcome: str
    """NONE, or the error for which nothing was written; ``MIXED`` if the partitions differ."""
    details: Mapping[str, Value] = field(default_factory=dict)

    def line(self) -> bytes:
        content = {
            "time": timestamp(self.time_ms),
            "time_ms": self.time_ms,
            "action": self.action,
            "outcome": self.outcome,
            "who": bounded(self.who),
            "transaction": bounded(self.transaction),
            "checked": list(self.checked),
            **{name: bounded(value) for name, value in self.details.items()},
        }
        # json.dumps escapes to ASCII: no client id can forge another line.
        return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def bounded(value: Value, elements: int = PARTITIONS_NAMED) -> Value:
    """A value with long names cut, and arrays cut to ``elements``."""
    if isinstance(value, str):
        return shortened(value, NAME_LENGTH)
    if isinstance(value, Mapping):
        return {name: bounded(inner, elements) for name, inner in value.items()}
    if isinstance(value, Sequence):
        return [bounded(inner, elements) for inner in value[:elements]]  # type: ignore[return-value]  # as they were
    return value


def timestamp(time_ms: int) -> str:
    """``2026-11-21T10:49:14.123Z``; the plain number if it is out of the calendar's range."""
    try:
        moment = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return str(time_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Requester(Protocol):
    """The part of a request's context that identifies the sender."""

    principal: str
    client_id: str | None
    client_host: str


def requester(context: Requester) -> Mapping[str, Value]:
    return {
        "principal": context.principal,
        "client_id": context.client_id,
        "host": context.client_host.removeprefix("/"),
    }


def summary(outcomes: Sequence[str]) -> str:
    return outcomes[0] if len(set(outcomes)) == 1 else "MIXED"
