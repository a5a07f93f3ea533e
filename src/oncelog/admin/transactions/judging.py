"""Whether an open transaction hangs: what a partition's leader says beside what the coordinators say. Pure.

An open transaction holds back everybody who reads committed records. That is right while its coordinator has it on its
list: it will end it, by the producer's word, by the time-out, or (two-phase commit) by somebody outside. It *hangs*
when no coordinator is going to write its marker any more. In the order of the table below:

standing             the coordinators say                                                       verdict
-------------------  -------------------------------------------------------------------------  ------------------
``ONGOING``          Ongoing with this id and epoch, and the partition is on its list           live
``TWO_PHASE``        the same, with the time-out that never fires (KIP-939); the epoch may be   two_phase
                     newer, when the transaction was kept for a new instance
``COMPLETING``       decided, and the partition still waits for its marker                      live
``BEHIND``           an epoch older than the leader has seen, yet the partition is listed       suspected
``MOVED_ON``         the id has another producer id or a newer epoch by now                     hanging
``ENDED``            this very transaction has ended, or nothing was begun since                hanging
``NOT_LISTED``       Ongoing with this id and epoch, but without this partition                 hanging
``FORGOTTEN``        none knows the producer id, and all have answered; or its id is known no   hanging
                     more, or only with an older epoch and without the partition
``UNHEARD``          none knows the producer id, but not all could be asked                     suspected

Rules:
1. The coordinator's word outweighs any clock: what it lists is live, however old the timestamps.
2. "hanging" needs three things: the contradiction, that it was still there when the leader was asked *again after* the
   coordinator had spoken (a transaction that completes in between looks like one that hangs), and the age asked for.
3. Age is now minus the timestamp of the first record. The last write is a lower bound, used only where the first
   record cannot be read. A time in the future is none.
4. Silence is no evidence: with a coordinator that did not answer, nothing is forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from oncelog.admin.transactions.describing import TransactionRow
from oncelog.admin.transactions.durations import duration_text
from oncelog.admin.transactions.producers import ProducerRow
from oncelog.base.units import MINUTE_MS

LATE_PADDING_MS: Final = 5 * MINUTE_MS
"""Beyond transaction.max.timeout.ms, before a transaction whose time-out is not known counts as late (KIP-664)."""

COMPLETING_STATES: Final = frozenset({"PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
_COMPLETE_STATES: Final = frozenset({"CompleteCommit", "CompleteAbort"})


class Verdict(Enum):
    """What is thought of an open transaction; the values are what ``--json`` prints."""

    HANGING = "hanging"
    SUSPECTED = "suspected"
    LIVE = "live"
    TWO_PHASE = "two_phase"


class Standing(Enum):
    """How leader and coordinators stand to each other; see the table above."""

    ONGOING = "ongoing"
    TWO_PHASE = "two_phase"
    COMPLETING = "completing"
    BEHIND = "behind"
    MOVED_ON = "moved_on"
    ENDED = "ended"
    NOT_LISTED = "not_listed"
    FORGOTTEN = "forgotten"
    UNHEARD = "unheard"


_VERDICTS: Final = {
    Standing.ONGOING: Verdict.LIVE,
    Standing.TWO_PHASE: Verdict.TWO_PHASE,
    Standing.COMPLETING: Verdict.LIVE,
    Standing.BEHIND: Verdict.SUSPECTED,
    Standing.MOVED_ON: Verdict.HANGING,
    Standing.ENDED: Verdict.HANGING,
    Standing.NOT_LISTED: Verdict.HANGING,
    Standing.FORGOTTEN: Verdict.HANGING,
    Standing.UNHEARD: Verdict.SUSPECTED,
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that coordinators said about the producer of a transaction.

    ``rows``: ids that have its producer id, or (where the leader named the id) that id. ``unknown_id``: the id that the
    leader named and its coordinator does not know. ``silence``: why an id that is not there may exist nevertheless.
    """

    rows: tuple[TransactionRow, ...] = ()
    unknown_id: str | None = None
    silence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """How they stand, by whose row, and why; ``reason`` is a clause about "the coordinator"."""

    standing: Standing
    row: TransactionRow | None
    reason: str


@dataclass(frozen=True, slots=True)
class Ages:
    """Times of a transaction in milliseconds, all at one moment. ``age_ms`` is None where the start has no time."""

    age_ms: int | None
    since_last_write_ms: int
    required_ms: int
    """The age from which on it may be called hanging."""
    problem: str | None = None
    """Why there is no age."""
    now_ms: int = 0
    """The moment, by the clock that coordinators' start times are compared with."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict and its reason, a sentence."""

    verdict: Verdict
    reason: str


def weigh(producer: ProducerRow, evidence: Evidence) -> Finding:
    """How leader and coordinators stand to each other. What excuses the transaction wins."""
    findings = [_beside(producer, row) for row in evidence.rows]
    for finding in findings:
        if finding.standing in (Standing.ONGOING, Standing.TWO_PHASE, Standing.COMPLETING, Standing.BEHIND):
            return finding
    if findings:
        return findings[0]
    if evidence.unknown_id is not None:
        reason = f"the coordinator of {evidence.unknown_id!r} does not know this id any more"
        return Finding(Standing.FORGOTTEN, None, reason)
    if evidence.silence:
        reason = "no coordinator that was heard knows the producer id, but " + "; ".join(evidence.silence)
        return Finding(Standing.UNHEARD, None, reason)
    return Finding(Standing.FORGOTTEN, None, f"no coordinator knows producer id {producer.producer_id}")


def _beside(producer: ProducerRow, row: TransactionRow) -> Finding:
    """One coordinator's row beside the leader's."""
    listed = producer.where in row.partitions
    named = repr(row.transactional_id)
    if row.is_two_phase and row.state == "Ongoing" and listed and row.producer_epoch >= producer.producer_epoch:
        return _ongoing(row, listed)  # a kept one (KIP-939) may have its next producer id or epoch already
    if row.producer_id != producer.producer_id:
        reason = f"the coordinator has gone on: {named} has producer id {row.producer_id} by now"
        return Finding(Standing.MOVED_ON, row, reason)
    if row.state in COMPLETING_STATES and listed and row.producer_epoch >= producer.producer_epoch:
        end = "commit" if row.state == "PrepareCommit" else "abort"
        reason = f"the coordinator has decided to {end} {named} and is about to write the marker here"
        return Finding(Standing.COMPLETING, row, reason)
    if row.producer_epoch < producer.producer_epoch:
        reason = (
            f"the coordinator has {named} at epoch {row.producer_epoch}, older than what the partition has seen "
            f"({producer.producer_epoch}): it has lost some of its state, "
        )
        if listed:
            return Finding(Standing.BEHIND, row, f"{reason}and its marker would be refused here")
        return Finding(Standing.FORGOTTEN, row, f"{reason}this transaction among it")
    if row.state == "Ongoing" and row.producer_epoch == producer.producer_epoch:
        return _ongoing(row, listed)
    if row.producer_epoch > producer.producer_epoch:
        reason = (
            f"the coordinator has gone on: {named} is at epoch {row.producer_epoch} by now, {row.state}, "
            f"and this was written with epoch {producer.producer_epoch}"
        )
        return Finding(Standing.MOVED_ON, row, reason)
    return Finding(Standing.ENDED, row, _ended(row))


def _ongoing(row: TransactionRow, listed: bool) -> Finding:
    named = repr(row.transactional_id)
    if not listed:
        reason = f"the coordinator has {named} Ongoing, but this partition is not part of that transaction"
        return Finding(Standing.NOT_LISTED, row, reason)
    if row.is_two_phase:
        reason = f"the coordinator has {named} Ongoing in two-phase commit: somebody outside has to end it"
        return Finding(Standing.TWO_PHASE, row, reason)
    return Finding(Standing.ONGOING, row, f"the coordinator has {named} Ongoing, with this partition")


def _ended(row: TransactionRow) -> str:
    named = repr(row.transactional_id)
    if row.state in _COMPLETE_STATES:
        end = "committed" if row.state == "CompleteCommit" else "aborted"
        return f"the coordinator has {end} {named} and written all its markers; these records came after the marker"
    if row.state in COMPLETING_STATES:
        return f"the coordinator is ending {named} ({row.state}) and has no marker left to write here"
    return f"the coordinator has no transaction of {named} open ({row.state})"


def judge(finding: Finding, ages: Ages, *, still_open: bool = True) -> Judgement:
    """The verdict. ``still_open``: the leader, asked again after the coordinators, had it as before."""
    verdict = _VERDICTS[finding.standing]
    if verdict is not Verdict.HANGING:
        return Judgement(verdict, _sentence(finding.reason + _overdue(finding, ages)))
    if not still_open:
        return Judgement(Verdict.SUSPECTED, _sentence(f"{finding.reason}; but it is changing just now, look again"))
    known_ms = ages.since_last_write_ms if ages.age_ms is None else ages.age_ms
    if known_ms >= ages.required_ms or ages.required_ms <= 0:
        return Judgement(Verdict.HANGING, _sentence(finding.reason))
    if ages.age_ms is None:
        return Judgement(Verdict.SUSPECTED, _sentence(f"{finding.reason}; but its age is not known: {ages.problem}"))
    young = f"{finding.reason}; but it began only {duration_text(ages.age_ms)} ago, less than the "
    return Judgement(Verdict.SUSPECTED, _sentence(f"{young}{duration_text(ages.required_ms)} asked for"))


def _overdue(finding: Finding, ages: Ages) -> str:
    """A remark on what takes longer than it should by the coordinator's own account, and is not ours to end."""
    row = finding.row
    if row is None or row.is_two_phase or row.start_ms is None:
        return ""
    late_ms = ages.now_ms - row.start_ms - row.timeout_ms
    if late_ms <= MINUTE_MS:
        return ""
    if finding.standing is Standing.ONGOING:
        return f"; its time-out has passed {duration_text(late_ms)} ago, so see why the coordinator does not abort it"
    if finding.standing is Standing.COMPLETING:
        return f"; its time-out has passed {duration_text(late_ms)} ago, so see why the marker does not arrive"
    return ""


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def required_age_ms(row: TransactionRow | None, min_age_ms: int | None, max_timeout_ms: int) -> int:
    """The age asked for: ``min_age_ms`` if given, else the transaction's own time-out, else the cluster's and some."""
    if min_age_ms is not None:
        return min_age_ms
    if row is not None and not row.is_two_phase and row.timeout_ms > 0:
        return row.timeout_ms
    return max_timeout_ms + LATE_PADDING_MS


def ages_of(
    now_ms: int, timestamp_ms: int | None, last_timestamp_ms: int, required_ms: int, problem: str | None = None
) -> Ages:
    """Ages at ``now_ms``; a time in the future is no time."""
    age_ms = None if timestamp_ms is None else now_ms - timestamp_ms
    if age_ms is not None and age_ms < 0:
        age_ms, problem = None, "its first record has a time in the future"
    since_ms = max(0, now_ms - last_timestamp_ms) if last_timestamp_ms >= 0 else 0
    return Ages(age_ms, since_ms, required_ms, problem, now_ms)


def contradicts(finding: Finding) -> bool:
    """Whether it takes a second look at the leader."""
    return _VERDICTS[finding.standing] is Verdict.HANGING
