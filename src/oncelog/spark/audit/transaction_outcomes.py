"""Decides the fate of a producer's transactions: all partitions together, against the coordinator's last record."""

# With Transactions V2 (KIP-890), one (producer id, epoch) is one transaction: its marker has the next epoch. Before,
# many transactions may share an epoch; only those in the coordinator's log (``coordinator_decisions``) and an epoch's
# last one, which a time-out or a new incarnation ended with the next epoch, can be compared.
#
# Open transactions go through the shared table of hanging transactions (``base.transaction_verdicts``), but no
# coordinator will act on files. Events that are not settled yet are not judged, because logs may be copied one after
# the other.

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Final

from oncelog.base.ids import CONSUMER_OFFSETS, TopicName, TopicPartition
from oncelog.base.transaction_verdicts import CoordinatorEntry, ReasonCode, classify
from oncelog.base.units import INT64_MAX
from oncelog.records.internal.transaction_records import STATE_NAMES
from oncelog.spark.audit.audit_context import GRACE_MS, AuditContext
from oncelog.spark.audit.coordinator_decisions import CLOCKS_MS
from oncelog.spark.audit.model import NONE, PART_GROUP, CoordinatorState, Finding, Part, TransactionOutcome
from oncelog.spark.audit.producer_history import LATE, finding_for

_ONGOING: Final = 1
_PREPARED: Final = (2, 3)
_TRANSACTIONS_V2: Final = 2
# Parts of one transaction held in memory; a transaction with more is not compared across partitions.
_MAX_TOGETHER: Final = 100_000
_NAMED: Final = 5


def decide_fates(parts: Iterable[Part], context: AuditContext) -> Iterator[Part | Finding]:
    """Yield the final transactions with their fate and transactional id, and findings. ``parts`` are in PART_ORDER and
    include the coordinators' states (``CoordinatorState.as_part``)."""
    audit = _ProducerOutcomes(context)
    for _, group in groupby(parts, key=attrgetter(*PART_GROUP)):
        yield from audit.producer(group)


class _ProducerOutcomes:
    def __init__(self, context: AuditContext) -> None:
        self._context = context
        self._knows_all = context.has_all_coordinators()
        self._complete_since = {partition: context.complete_since(partition) for partition in context.coordinators}

    def producer(self, parts: Iterable[Part]) -> Iterator[Part | Finding]:
        """Decide the transactions of one producer id. States precede parts: empty topic, epoch −1."""
        state: CoordinatorState | None = None
        epoch, together = NONE, list[Part]()
        for part in parts:
            if not part.topic:
                previous = CoordinatorState.from_part(part)
                if state is None or (previous.updated, previous.log_offset) >= (state.updated, state.log_offset):
                    state = previous
                continue
            if state is not None and not part.transactional_id:
                part = part._replace(transactional_id=state.transactional_id)
            if part.epoch != epoch:
                yield from self._settle_epoch(together)
                epoch, together = part.epoch, []
            if part.outcome == TransactionOutcome.OPEN and part.fate in ("open", LATE):
                late = part.fate == LATE
                part, findings = self._judge_open(part, state)
                yield from findings
                if late:  # a late write belongs to no transaction of its epoch
                    yield part
                    continue
            elif part.decided == TransactionOutcome.OPEN and part.outcome in (
                TransactionOutcome.ABORTED,
                TransactionOutcome.COMMITTED,
            ):
                yield from self._check_marker(part, state)
            # Before Transactions V2, earlier commits of an epoch cannot be assigned to a transaction.
            is_last_of_epoch = part.marker_epoch > part.epoch or part.outcome != TransactionOutcome.COMMITTED
            if part.batches and is_last_of_epoch and len(together) < _MAX_TOGETHER:
                together.append(part)
            else:
                yield part
        yield from self._settle_epoch(together)

    def _settle_epoch(self, together: list[Part]) -> Iterator[Part | Finding]:
        final = [part for part in together if part.marker_epoch > part.epoch]
        committed = [part for part in final if part.outcome == TransactionOutcome.COMMITTED]
        aborted = [part for part in final if part.outcome == TransactionOutcome.ABORTED]
        if committed:  # only Transactions V2 raises the epoch with a commit: the whole epoch is one transaction
            aborted = [part for part in together if part.outcome == TransactionOutcome.ABORTED]
        unended = [
            part
            for part in together
            if part.outcome == TransactionOutcome.OPEN and part.fate in ("open", "hanging", "torn")
        ]
        torn: set[int] = set()
        if committed and aborted:
            torn.update(map(id, (*committed, *aborted)))
            text = f"committed on {_partition_list(committed)}, aborted on {_partition_list(aborted)}"
            yield finding_for("torn", aborted[0], text)
            for part in committed:
                if part.topic == CONSUMER_OFFSETS:
                    text = (
                        f"offsets were committed, the records written with them on {_partition_list(aborted)} aborted"
                    )
                    yield finding_for("aborted-offsets", part, text)
        ends = [part.ended for part in final]
        for part in unended if final and self._context.is_settled(min(ends)) else ():
            torn.add(id(part))
            if part.fate != "torn":
                outcome = "committed" if committed else "aborted"
                text = f"no marker here, {outcome} on {_partition_list(committed or aborted or final)}"
                yield finding_for("torn", part, text)
        for part in together:
            yield part._replace(fate="torn") if id(part) in torn else part

    def _judge_open(self, part: Part, state: CoordinatorState | None) -> tuple[Part, list[Finding]]:
        fate, text = self._fate_of_open(part, state)
        # A late write belongs to no transaction, so it cannot be a part of a torn one.
        if fate == "torn" and part.fate == LATE:
            fate = "hanging"
        part = part._replace(fate=fate)
        if fate not in ("hanging", "torn"):
            return part, []
        findings = [finding_for(fate, part, text)]
        if fate == "hanging" and part.after_marker >= 0 and state is not None and _same_epoch_twice(state):
            late = f"written after the marker at offset {part.after_marker} of the same epoch, in no transaction since"
            findings.append(finding_for("late-write", part, late))
        return part, findings

    def _fate_of_open(self, part: Part, state: CoordinatorState | None) -> tuple[str, str]:
        now, limits = self._context.now_ms, self._context.limits
        age = now - max(part.started, 0)
        if state is None:
            if self._knows_all and self._context.is_settled(part.started):
                return "hanging", f"open for {_span(age)}, and no coordinator knows producer {part.producer_id}"
            if age > limits.transaction_max_timeout_ms + GRACE_MS:
                return "hanging", f"open for {_span(age)}; no log of its coordinator is here to ask"
            return "open", ""
        listed = f"{part.topic}-{part.partition}" in state.partitions.split(" ")
        coordinator_state = f"the coordinator says {_state_name(state.status)} at epoch {state.epoch}"
        entry = CoordinatorEntry(_state_name(state.status), state.timeout_ms, state.producer_id, state.epoch, listed)
        code = classify(entry, part.producer_id, part.epoch)
        if code is ReasonCode.TWO_PHASE:
            return "open", ""
        if code is ReasonCode.ONGOING:
            # A live coordinator would abort it; in files it hangs.
            if now - state.started > state.timeout_ms + GRACE_MS:
                return (
                    "hanging",
                    f"open for {_span(now - state.started)}, and its time-out is {_span(state.timeout_ms)}",
                )
            return "open", ""
        settled = self._context.is_settled(max(part.started, state.updated))
        if code is ReasonCode.COMPLETING:
            # The transaction is decided; it is torn once its marker is overdue.
            if now - state.updated <= GRACE_MS or not settled:
                return "ending", ""
            return "torn", f"no marker: {coordinator_state} since {_span(now - state.updated)}"
        if not settled and age <= limits.transaction_max_timeout_ms + GRACE_MS:
            return "open", ""  # one of the two logs may have been copied before the other changed
        without = (
            f", without {part.topic}-{part.partition}" if state.status in (_ONGOING, *_PREPARED) and not listed else ""
        )
        place = self._context.partitions.get(TopicPartition(TopicName(part.topic), part.partition))
        # After a marker of its own epoch it is a late write.
        election = "" if place is None or part.after_marker >= 0 else place.election_after(part.last_offset)
        lost = f"; {election}: an unclean election may have lost its marker" if election else ""
        return "hanging", f"open for {_span(age)}; {coordinator_state}{without}{lost}"

    def _check_marker(self, part: Part, state: CoordinatorState | None) -> Iterator[Finding]:
        """Report a marker without a decision, if all decisions of its time are known."""
        if not self._context.is_settled(part.ended):
            return
        if state is None:
            age = self._context.now_ms - part.ended
            is_certain = self._knows_all and age < self._context.limits.transactional_id_expiration_ms
            # Compaction drops a producer id after its transactional id got another one, such as after 32,767 epochs.
            if is_certain and all(_has_all(since, part) for since in self._complete_since.values()):
                yield _marker_finding(part, f"no coordinator knows producer {part.producer_id}")
            return
        since = self._complete_since.get(state.log_partition, INT64_MAX)
        place = self._context.partitions[TopicPartition(TopicName(part.topic), part.partition)]
        unmistakable = state.version >= _TRANSACTIONS_V2 or place.is_whole
        if unmistakable and _has_all(since, part):
            word = "commit" if part.outcome == TransactionOutcome.COMMITTED else "abort"
            text = f"the coordinator has not decided to {word} at epoch {part.marker_epoch} here"
            yield _marker_finding(part, text + _by_hand(part))


def _has_all(since: int, part: Part) -> bool:
    """True if a log with all decisions since ``since`` includes the decision that ended ``part``."""
    return since < 0 or part.ended - CLOCKS_MS > since


def _same_epoch_twice(state: CoordinatorState) -> bool:
    # True if data after a marker of its own epoch is late: nothing is ongoing and markers do not raise the epoch.
    return state.version < _TRANSACTIONS_V2 and state.status not in (_ONGOING, *_PREPARED)


def _by_hand(part: Part) -> str:
    by_hand = part.outcome == TransactionOutcome.ABORTED and part.marker_epoch == part.epoch
    return "; an abort by an administrator looks like this" if by_hand else ""


def _marker_finding(part: Part, text: str) -> Finding:
    finding = finding_for("stray-marker", part, text)
    return finding._replace(offset=part.marker_offset, last_offset=NONE, time=part.ended, epoch=part.marker_epoch)


def _partition_list(parts: list[Part]) -> str:
    names = sorted({f"{part.topic}-{part.partition}" for part in parts})
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _state_name(status: int) -> str:
    return STATE_NAMES[status] if 0 <= status < len(STATE_NAMES) else f"state {status}"


def _span(milliseconds: int) -> str:
    seconds = max(0, milliseconds) // 1000
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7200:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h" if seconds < 172_800 else f"{seconds // 86_400} d"
