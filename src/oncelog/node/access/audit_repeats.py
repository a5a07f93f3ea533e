"""The audit log's rate limit: repeated records are counted, so that repetition cannot push an abort out of the log.

The broker's own actions and every abort of a hanging transaction are written in full; other records ``IN_FULL`` times
per interval. After that they are counted, and the interval ends with one record of the count, the outcomes and the last
repetition. Records repeat each other if principal, host, action and success agree; values that a client can make up
(its id, the request's content) are ignored. Beyond ``REQUESTERS`` keys, the others share one.
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
# Elements of an array (partitions of a request) kept in a record of repetitions.
_ELEMENTS_KEPT: Final = 10
REPEATED: Final = "repeated"
"""The field that marks a record of repetitions."""

_Key = tuple[str, ...]
_OTHERS: Final[_Key] = ("others",)
_DONE: Final = ("NONE", "MIXED")


@dataclass(slots=True)
class _Seen:
    in_full: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    """Records that were only counted, by outcome."""
    since_ms: int = 0
    last: AuditRecord | None = None


class AuditLimiter:
    def __init__(self) -> None:
        self._seen: dict[_Key, _Seen] = {}

    def should_write(self, effect: Audit) -> bool:
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
        """Return a record for each kind that was counted, and begin the next interval."""
        repetitions = [Audit(_repetition(seen)) for seen in self._seen.values() if seen.last is not None]
        self._seen.clear()
        return repetitions

    def _seen_of(self, record: AuditRecord) -> _Seen:
        done = "done" if record.outcome in _DONE else "refused"
        principal = shortened(str(record.who.get("principal")), NAME_LENGTH)
        key: _Key = (principal, str(record.who.get("host")), record.action, done)
        if key not in self._seen and len(self._seen) >= REQUESTERS:
            key = _OTHERS
        return self._seen.setdefault(key, _Seen())


def _kept(record: AuditRecord) -> AuditRecord:
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
