"""Matches the coordinator's decisions about a producer on a partition with the markers in that partition's log.

A marker matches the next decision with its epoch and outcome. If markers may be missing (compaction, retention), it
matches the last such decision before it. A marker without data since one of its own epoch and outcome may be that one
written again, because its answer was lost: it matches no decision after it. A marker contradicts a decision with the
same epoch, a different outcome and no later time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from oncelog.spark.audit.audit_context import GRACE_MS, AuditContext
from oncelog.spark.audit.model import Fact, Part, TransactionOutcome

# Clocks of two brokers differ: a matching decision may be up to a minute later than its marker.
CLOCKS_MS: Final = 60_000
# Decisions beside the nearest one that are compared with a marker.
_NEAR: Final = 3


class Decisions:
    """One producer's decisions on one partition, in the coordinator's order."""

    def __init__(self, *, whole: bool) -> None:
        """``whole``: the partition's log has every marker, so decisions and markers pair up from the first on."""
        self._whole = whole
        self._all: list[Fact] = []
        self._next = 0
        self._unmet: list[Fact] = []
        # Repeated markers without a decision before them, by epoch and outcome.
        self._repeats: Counter[tuple[int, int]] = Counter()
        self.transactional_id = ""

    def add(self, decision: Fact) -> None:
        self._all.append(decision)
        self.transactional_id = decision.name

    def match(self, marker: Fact, *, repeated: bool) -> tuple[Fact | None, str]:
        """Return the decision that ``marker`` carries out, and a text if the marker contradicts it."""
        if self._next >= len(self._all) or marker.outcome == TransactionOutcome.UNKNOWN:
            return None, ""
        nearest = self._next if self._whole else self._latest_before(marker.last_timestamp)
        first = self._next if self._whole else max(self._next, nearest - _NEAR)
        until = marker.last_timestamp + (0 if repeated else CLOCKS_MS)
        for index in (nearest, *range(first, min(nearest + _NEAR, len(self._all)))):
            decision = self._all[index]
            same = (decision.epoch, decision.outcome) == (marker.epoch, marker.outcome)
            if same and decision.last_timestamp <= until:
                # In a whole log the skipped decisions have no marker.
                self._unmet += self._all[self._next : index] if self._whole else ()
                self._next = index + 1
                return decision, ""
        decision = self._all[nearest]
        # The coordinator's log is compacted: a marker without a decision proves nothing here. transaction_outcomes
        # knows since when that log is complete.
        if repeated:
            self._repeats[marker.epoch, marker.outcome] += 1
            return None, ""
        if decision.epoch != marker.epoch or decision.last_timestamp > marker.last_timestamp:
            return None, ""
        self._next = nearest + 1
        return decision, f"the marker says {_word(marker)}, the coordinator decided to {_word(decision)}"

    def _latest_before(self, timestamp: int) -> int:
        """Index of the last decision older than ``timestamp``, or of the next decision if none is."""
        index = self._next
        while index + 1 < len(self._all) and self._all[index + 1].last_timestamp < timestamp:
            index += 1
        return index

    def _without_marker(self) -> Iterator[Fact]:
        # A repeated marker may be that of a transaction without data here whose decision is later by the clock of its
        # coordinator: one decision is left over then.
        repeats = self._repeats.copy()
        for decision in (*self._unmet, *self._all[self._next :]):
            repeats[decision.epoch, decision.outcome] -= 1
            if repeats[decision.epoch, decision.outcome] < 0:
                yield decision

    def unmarked_decision(self, part: Part, context: AuditContext) -> Fact | None:
        """The decision whose marker an open transaction lacks, if that marker can no longer come."""
        for decision in self._without_marker():
            # Transactions V2 (KIP-890) raises the epoch with the decision, so it may be one above the data's.
            is_its_own = part.epoch in (decision.epoch, decision.epoch - 1)
            after = decision.last_timestamp + (CLOCKS_MS if self._whole else 0) >= part.started
            if is_its_own and after and _is_over(decision, context):
                return decision
        return None

    def decisions_without_marker(self, since_ms: int, context: AuditContext) -> Iterator[Fact]:
        """Decisions without a marker, for a log that has lost nothing since ``since_ms``."""
        for decision in self._without_marker():
            if 0 <= since_ms < decision.last_timestamp and _is_over(decision, context):
                yield decision


def _is_over(decision: Fact, context: AuditContext) -> bool:
    """True if the marker is overdue: the coordinator moved on, or its grace period ended."""
    if decision.transactional and context.is_settled(decision.first_timestamp):
        return True
    return context.now_ms - decision.last_timestamp > GRACE_MS and context.is_settled(decision.last_timestamp)


def _word(fact: Fact) -> str:
    return "commit" if fact.outcome == TransactionOutcome.COMMITTED else "abort"
