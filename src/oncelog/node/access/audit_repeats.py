"""Bounds of the audit log, which repetitions are only counted: nobody pushes the end of a transaction out of it by
repeating.

The rule: what ended a hanging transaction is always said in full, and what the broker did itself. Of all else (markers
as Apache Kafka's tools and coordinators send them, new instances of a producer, whatever was refused) the same from the
same requester is said in full ``IN_FULL`` times, and then counted, until the interval is over: then one record says how
many more there were, with what came of them and the last of them. The same: principal, host and action, and whether
something was done; not what a client can make up, its id and what it asked for. Requesters are ``REQUESTERS`` at most,
all others are one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from oncelog.base.text import shortened
from oncelog.handlers.broker.audit import ABORT_HANGING, NAME_LENGTH, AuditRecord, Value, bounded, summary
from oncelog.node.kernel.events import Audit

INTERVAL_S: Final = 600.0
IN_FULL: Final = 20
REQUESTERS: Final = 100
_ELEMENTS_KEPT: Final = 10
"""Elements of an array, the partitions of a request, that a record of repetitions names."""
REPEATED: Final = "repeated"
"""The field that only a record of repetitions has."""

_Key = tuple[str, ...]
_OTHERS: Final[_Key] = ("others",)
_DONE: Final = ("NONE", "MIXED")


@dataclass(slots=True)
class _Seen:
    """One kind of record in this interval."""

    in_full: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    """Number of those that were only counted."""
    since_ms: int = 0
    last: AuditRecord | None = None


class AuditLimiter:
    """The kinds of records that there were in this interval."""

    def __init__(self) -> None:
        self._seen: dict[_Key, _Seen] = {}

    def should_write(self, effect: Audit) -> bool:
        """True if a record is to be written; otherwise it is counted."""
        record = effect.record
        if record.who.get("broker") or (record.action == ABORT_HANGING and record.outcome in _DONE):
            return True
        seen = self._seen_of(record)
        if seen.in_full < IN_FULL:
            seen.in_full += 1
            return True
        if not seen.outcomes:
            seen.since_ms = record.time_ms
        seen.outcomes[record.outcome] += 1
        seen.last = _kept(record)
        return False

    def counted(self) -> list[Audit]:
        """The interval is over: a record for every kind of which some were only counted."""
        found = [Audit(_repetition(seen)) for seen in self._seen.values() if seen.last is not None]
        self._seen.clear()
        return found

    def _seen_of(self, record: AuditRecord) -> _Seen:
        done = "done" if record.outcome in _DONE else "refused"
        principal = shortened(str(record.who.get("principal")), NAME_LENGTH)
        key: _Key = (principal, str(record.who.get("host")), record.action, done)
        if key not in self._seen and len(self._seen) >= REQUESTERS:
            key = _OTHERS
        return self._seen.setdefault(key, _Seen())


def _kept(record: AuditRecord) -> AuditRecord:
    """A record as it is kept until the interval is over: a request may name a megabyte."""
    return replace(
        record, who=_short(record.who), transaction=_short(record.transaction), details=_short(record.details)
    )


def _short(values: Mapping[str, Value]) -> Mapping[str, Value]:
    return {name: bounded(value, _ELEMENTS_KEPT) for name, value in values.items()}


def _repetition(seen: _Seen) -> AuditRecord:
    assert seen.last is not None
    repeated: dict[str, Value] = {
        "more": seen.outcomes.total(),
        "since_ms": seen.since_ms,
        "outcomes": dict(seen.outcomes),
    }
    return replace(seen.last, outcome=summary(list(seen.outcomes)), details={**seen.last.details, REPEATED: repeated})
