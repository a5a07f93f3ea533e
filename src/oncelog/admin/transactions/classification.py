"""Classifies an open transaction for the administrator's tool: verdict, reason, and whether to recheck. Pure.

The reason code comes from the one table of hanging transactions (``base.transaction_verdicts``). This module feeds the
table with the answers of partition leader and coordinators, picks one answer of several, and puts the reason into
words.

"hanging" needs three things: the reason code, confirmation by the leader *after* the coordinator answered, and the
required age. Without the confirmation, a transaction that completes in between, one on a replaced leader, or a live one
judged by a replaced coordinator would look hanging.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from oncelog.admin.transactions.durations import duration_text
from oncelog.admin.transactions.producers import ProducerRow
from oncelog.admin.transactions.transactional_ids import TransactionRow
from oncelog.base import transaction_verdicts
from oncelog.base.transaction_verdicts import (
    DECIDED_STATES,
    RULES,
    CoordinatorEntry,
    ReasonCode,
    Verdict,
    classify_without_entry,
    late_after_ms,
)
from oncelog.base.units import MINUTE_MS

CHANGING: Final = "it is changing just now, look again"
"""The doubt if the leader's second answer differs."""
OR_LOST: Final = ", or it was lost"
"""A scan does not look for the marker; ``explain`` does, and leaves this out."""
_COMPLETE_STATES: Final = frozenset({"CompleteCommit", "CompleteAbort"})


@dataclass(frozen=True, slots=True)
class Evidence:
    """The coordinators' answers about the producer of a transaction.

    ``rows`` are ids with its producer id, or the id that the leader named. ``unknown_id`` is the id that the leader
    named and its coordinator does not know. ``unanswered`` says why a missing id may exist nevertheless.
    """

    rows: tuple[TransactionRow, ...] = ()
    unknown_id: str | None = None
    unanswered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """The reason code, the coordinator's row behind it, and the reason as a clause about "the coordinator"."""

    code: ReasonCode
    row: TransactionRow | None
    reason: str


@dataclass(frozen=True, slots=True)
class Ages:
    """Times of a transaction in milliseconds, all at one moment. ``age_ms`` is None if the start time is unknown."""

    age_ms: int | None
    since_last_write_ms: int
    required_ms: int
    """The age from which it may be called hanging."""
    problem: str | None = None
    """Why the age is None."""
    now_ms: int = 0
    """The moment, on the clock that coordinators' start times are compared with."""


@dataclass(frozen=True, slots=True)
class Classification:
    verdict: Verdict
    reason: str


def finding_of(producer: ProducerRow, evidence: Evidence) -> Finding:
    """The finding about the transaction that ``producer`` has open, from all answers of coordinators."""
    findings = [_from_row(producer, row) for row in evidence.rows]
    # The most favourable answer wins: of several transactional ids with one producer id, the one that is not hanging.
    for finding in findings:
        if not needs_recheck(finding):
            return finding
    if findings:
        return findings[0]
    if evidence.unknown_id is not None:
        reason = f"the coordinator of {evidence.unknown_id!r} does not know this id any more"
        return Finding(classify_without_entry(all_answered=True), None, reason)
    # No answer is no evidence: while a coordinator has not answered, nothing counts as forgotten.
    code = classify_without_entry(all_answered=not evidence.unanswered)
    if evidence.unanswered:
        reason = "no coordinator that was heard knows the producer id, but " + "; ".join(evidence.unanswered)
    else:
        reason = f"no coordinator knows producer id {producer.producer_id}"
    return Finding(code, None, reason)


def _from_row(producer: ProducerRow, row: TransactionRow) -> Finding:
    listed = producer.topic_partition in row.partitions
    entry = CoordinatorEntry(row.state, row.timeout_ms, row.producer_id, row.producer_epoch, listed)
    code = transaction_verdicts.classify(entry, producer.producer_id, producer.producer_epoch)
    return Finding(code, row, _reason(code, producer, row))


def _reason(code: ReasonCode, producer: ProducerRow, row: TransactionRow) -> str:
    named = repr(row.transactional_id)
    match code:
        case ReasonCode.ONGOING:
            return f"the coordinator has {named} Ongoing, with this partition"
        case ReasonCode.TWO_PHASE:
            return f"the coordinator has {named} Ongoing in two-phase commit: the application that prepared it ends it"
        case ReasonCode.COMPLETING:
            end = "commit" if row.state == "PrepareCommit" else "abort"
            return f"the coordinator has decided to {end} {named} and is about to write the marker here"
        case ReasonCode.NOT_LISTED:
            return f"the coordinator has {named} Ongoing, but this partition is not part of that transaction"
        case ReasonCode.MOVED_ON:
            return _moved_on(producer, row)
        case ReasonCode.ENDED:
            return _ended(row)
    lost = (
        f"the coordinator has {named} at epoch {row.producer_epoch}, older than what the partition has seen "
        f"({producer.producer_epoch}): it has lost some of its state, "
    )
    if code is ReasonCode.BEHIND:
        return f"{lost}and its marker would be refused here"
    return f"{lost}this transaction among it"


def _moved_on(producer: ProducerRow, row: TransactionRow) -> str:
    named = repr(row.transactional_id)
    if row.producer_id != producer.producer_id:
        return f"the coordinator has gone on: {named} has producer id {row.producer_id} by now"
    return (
        f"the coordinator has gone on: {named} is at epoch {row.producer_epoch} by now, {row.state}, "
        f"and this was written with epoch {producer.producer_epoch}"
    )


def _ended(row: TransactionRow) -> str:
    named = repr(row.transactional_id)
    if row.state in _COMPLETE_STATES:
        end = "committed" if row.state == "CompleteCommit" else "aborted"
        return (
            f"the coordinator has {end} {named} and written all its markers; these records came after the marker"
            f"{OR_LOST}"
        )
    if row.state in DECIDED_STATES:
        return f"the coordinator is ending {named} ({row.state}) and has no marker left to write here"
    return f"the coordinator has no transaction of {named} open ({row.state})"


def needs_recheck(finding: Finding) -> bool:
    """True for a hanging verdict, which holds only if the leader still has the transaction open when asked again."""
    return RULES[finding.code].verdict is Verdict.HANGING


def classify(finding: Finding, ages: Ages, *, doubt: str | None = None) -> Classification:
    """The verdict. ``doubt`` says why the recheck did not confirm it (the leader's answer changed, or the brokers were
    not the coordinators); None if it did.
    """
    verdict = RULES[finding.code].verdict
    if verdict is not Verdict.HANGING:
        return Classification(verdict, _sentence(finding.reason + _overdue(finding, ages)))
    if doubt is not None:
        return Classification(Verdict.SUSPECTED, _sentence(f"{finding.reason}; but {doubt}"))
    # The last write is a lower bound of the age, for a first record that cannot be read.
    least_age_ms = ages.since_last_write_ms if ages.age_ms is None else ages.age_ms
    if least_age_ms >= ages.required_ms or ages.required_ms <= 0:
        return Classification(Verdict.HANGING, _sentence(finding.reason))
    if ages.age_ms is None:
        return Classification(
            Verdict.SUSPECTED, _sentence(f"{finding.reason}; but its age is not known: {ages.problem}")
        )
    young = f"{finding.reason}; but it began only {duration_text(ages.age_ms)} ago, and counts as hanging from "
    return Classification(Verdict.SUSPECTED, _sentence(f"{young}{duration_text(ages.required_ms)} on"))


def _overdue(finding: Finding, ages: Ages) -> str:
    """A remark on a transaction that the coordinator should have ended by its own account."""
    late_ms = overdue_ms(finding, ages.now_ms)
    if not late_ms:
        return ""
    why = "the coordinator does not abort it" if finding.code is ReasonCode.ONGOING else "the marker does not arrive"
    return f"; its time-out has passed {duration_text(late_ms)} ago, so see why {why}"


def overdue_ms(finding: Finding, now_ms: int) -> int:
    """How long ago the coordinator should have ended the transaction; 0 up to a minute, and if it need not."""
    row = finding.row
    if row is None or row.is_two_phase or row.start_ms is None:
        return 0
    if finding.code not in (ReasonCode.ONGOING, ReasonCode.COMPLETING):
        return 0
    late_ms = now_ms - row.start_ms - row.timeout_ms
    return late_ms if late_ms > MINUTE_MS else 0


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def required_age_ms(row: TransactionRow | None, min_age_ms: int | None, max_timeout_ms: int) -> int:
    """The required age: ``min_age_ms`` if given, else the age from which the transaction is late."""
    if min_age_ms is not None:
        return min_age_ms
    return late_after_ms(None if row is None else row.timeout_ms, max_timeout_ms)


def ages_of(
    now_ms: int, timestamp_ms: int | None, last_timestamp_ms: int, required_ms: int, problem: str | None = None
) -> Ages:
    age_ms = None if timestamp_ms is None else now_ms - timestamp_ms
    # Producers' clocks may be ahead.
    if age_ms is not None and age_ms < 0:
        age_ms, problem = None, "its first record has a time in the future"
    since_ms = max(0, now_ms - last_timestamp_ms) if last_timestamp_ms >= 0 else 0
    return Ages(age_ms, since_ms, required_ms, problem, now_ms)
