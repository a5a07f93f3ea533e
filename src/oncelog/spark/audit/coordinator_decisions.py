"""The coordinator's decisions about a producer on a partition, matched with the markers found there, in order.

A marker is matched with the next decision of its epoch and outcome; where markers may be gone (compaction, retention),
with the last decision before it. The coordinator's log is compacted, too: older decisions may be gone, so that a marker
without one says nothing here (``fates`` knows from when on the log is complete). A marker contradicts a decision when
it has its epoch and not its outcome, and is not older.

Clocks of two brokers differ: a decision that fits may be later than its marker by up to a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oncelog.spark.audit.audit_context import GRACE_MS, AuditContext
from oncelog.spark.audit.model import Fact, Outcome, Part

CLOCKS_MS: Final = 60_000
_NEAR: Final = 3
"""Decisions beside the nearest that are looked at."""


class Decisions:
    """Decisions about one producer on one partition, in the coordinator's order."""

    def __init__(self, *, whole: bool) -> None:
        """``whole``: no marker can be missing from the partition's log, so that the first there is the first."""
        self._whole = whole
        self._all: list[Fact] = []
        self._next = 0
        self._unmet: list[Fact] = []
        self.transactional_id = ""

    def add(self, decision: Fact) -> None:
        """Add a decision, the latest so far."""
        self._all.append(decision)
        self.transactional_id = decision.name

    def match(self, marker: Fact, *, repeated: bool) -> tuple[Fact | None, str]:
        """The decision that a marker carries out; if it contradicts one, a text that says how."""
        if self._next >= len(self._all) or marker.outcome == Outcome.UNKNOWN:
            return None, ""
        nearest = self._next if self._whole else self._latest_before(marker.last_timestamp)
        first = self._next if self._whole else max(self._next, nearest - _NEAR)
        for index in (nearest, *range(first, min(nearest + _NEAR, len(self._all)))):
            decision = self._all[index]
            same = (decision.epoch, decision.outcome) == (marker.epoch, marker.outcome)
            if same and decision.last_timestamp <= marker.last_timestamp + CLOCKS_MS:
                self._unmet += self._all[self._next : index] if self._whole else ()
                self._next = index + 1
                return decision, ""
        decision = self._all[nearest]
        if repeated or decision.epoch != marker.epoch or decision.last_timestamp > marker.last_timestamp:
            return None, ""
        self._next = nearest + 1
        return decision, f"the marker says {_word(marker)}, the coordinator decided to {_word(decision)}"

    def _latest_before(self, timestamp: int) -> int:
        """Place of the last decision that is older than ``timestamp``; the next one when none is."""
        index = self._next
        while index + 1 < len(self._all) and self._all[index + 1].last_timestamp < timestamp:
            index += 1
        return index

    def missing_for(self, part: Part, context: AuditContext) -> Fact | None:
        """The decision whose marker an open transaction lacks, if it is certain that none will come."""
        for decision in (*self._unmet, *self._all[self._next :]):
            is_its_own = part.epoch in (decision.epoch, decision.epoch - 1)
            after = decision.last_timestamp + (CLOCKS_MS if self._whole else 0) >= part.started
            if is_its_own and after and _is_over(decision, context):
                return decision
        return None

    def never_written(self, since_ms: int, context: AuditContext) -> Iterator[Fact]:
        """Decisions without a marker, of a log that has lost nothing since ``since_ms``."""
        for decision in (*self._unmet, *self._all[self._next :]):
            if 0 <= since_ms < decision.last_timestamp and _is_over(decision, context):
                yield decision


def _is_over(decision: Fact, context: AuditContext) -> bool:
    """True if the coordinator went on, or its time was over, so long ago that the marker would be there."""
    if decision.transactional and context.is_settled(decision.first_timestamp):
        return True
    return context.now_ms - decision.last_timestamp > GRACE_MS and context.is_settled(decision.last_timestamp)


def _word(fact: Fact) -> str:
    return "commit" if fact.outcome == Outcome.COMMITTED else "abort"
