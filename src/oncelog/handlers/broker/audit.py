"""The audit record of an administrative end of a transaction: one JSON object a line. Not an API.

The rule: who, from where, which transaction, what was checked, what came of it, when; nothing is left to be looked up
elsewhere. A record is made where the decision is, and the runtime writes it (``docs/internals/hanging-transactions.md``
has the fields). Names of more than ``NAME_LENGTH`` characters are cut: peers choose them, and the log has a bound.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from oncelog.base.text import shortened

PARTITIONS_NAMED: Final = 100
"""A record names so many partitions; the others are counted."""
NAME_LENGTH: Final = 512
"""Characters of a name; of a longer one the beginning and a digest."""
ABORT_HANGING: Final = "abort-hanging"
"""The action of markers with a start offset: an administrator's, conditional."""
WRITE_MARKERS: Final = "write-markers"
"""The action of markers without one, as Apache Kafka's own tools send them."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Value = str | int | bool | None | Sequence[str] | Mapping[str, "Value"] | Sequence[Mapping[str, "Value"]]


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One line of the audit log."""

    time_ms: int
    action: str
    who: Mapping[str, Value]
    transaction: Mapping[str, Value]
    checked: Sequence[str]
    """The conditions that were looked at, in words."""
    outcome: str
    """NONE, or the error for which nothing was written; ``MIXED`` where the partitions differ."""
    details: Mapping[str, Value] = field(default_factory=dict)

    def line(self) -> bytes:
        """The line, with its end; ASCII, so that no client id can forge another line."""
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
        return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def bounded(value: Value, elements: int = PARTITIONS_NAMED) -> Value:
    """A value with its names cut, and its arrays cut to so many elements."""
    if isinstance(value, str):
        return shortened(value, NAME_LENGTH)
    if isinstance(value, Mapping):
        return {name: bounded(inner, elements) for name, inner in value.items()}
    if isinstance(value, Sequence):
        return [bounded(inner, elements) for inner in value[:elements]]  # type: ignore[return-value]  # as they were
    return value


def timestamp(time_ms: int) -> str:
    """``2026-11-21T10:49:14.123Z``; the number where no calendar has it."""
    try:
        moment = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return str(time_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Requester(Protocol):
    """The part of a request's context that says who sent it."""

    principal: str
    client_id: str | None
    client_host: str


def requester(context: Requester) -> Mapping[str, Value]:
    """The sender of a request: principal, client id, host."""
    return {
        "principal": context.principal,
        "client_id": context.client_id,
        "host": context.client_host.removeprefix("/"),
    }


def summary(outcomes: Sequence[str]) -> str:
    """The outcome of several partitions in one word."""
    return outcomes[0] if len(set(outcomes)) == 1 else "MIXED"
