"""The one table of hanging transactions (KIP-664), for the broker, the administrator's tool, the audit, the simulator.

A transaction that is open on a partition holds back every reader of committed records. That is right while its
coordinator is going to end it: by the producer's word, by the time-out, or (two-phase commit, KIP-939) by somebody
outside. It *hangs* when no coordinator is going to write its marker on this partition any more.

Two sides are compared. The partition has a producer id and epoch with a transaction open; the coordinator has an entry
for the transactional id (:class:`CoordinatorEntry`). ``_REASON_CODES`` takes the three facts that matter (the state of
the entry, whether it lists the partition, and its producer beside the partition's) to a :class:`ReasonCode`; ``RULES``
takes the reason code to a verdict, to the word that a broker reports, and to the ways in which it may be ended.

Rules:

1. The coordinator's word outweighs any clock: what it lists is not hanging, however old the timestamps.
2. No answer is no evidence: FORGOTTEN takes the answer of every coordinator that could have the id.
3. An entry with an older epoch than the partition's is a coordinator that has lost state. If it lists the partition all
   the same, nothing is certain: its own marker would be refused as of an old epoch.
4. A reason code says what two answers mean that belong together. Whoever asks over the network takes a second look at
   the partition before it says "hanging": a transaction that ends between the two answers looks like one that hangs.
5. Whoever wants to be sure that an end is not merely on its way asks for an age too: :func:`late_after_ms`.

Knows no ids' types, no messages, no time, and asks nobody. What differs between rooms stays there: the sentences, the
second look, and that files at rest have no coordinator that will still act (``spark.audit.fates``).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from oncelog.base.units import INT32_MAX, MINUTE_MS

NEVER_TIMES_OUT: Final = INT32_MAX
"""The time-out of two-phase commit (KIP-939): the coordinator leaves such a transaction alone."""
LATE_PADDING_MS: Final = 5 * MINUTE_MS
"""The time beyond transaction.max.timeout.ms from which on a transaction is late whatever its time-out (KIP-664)."""

ONGOING_STATE: Final = "Ongoing"
DECIDED_STATES: Final = frozenset({"PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""The outcome is fixed; the entry lists the partitions whose marker is still to be written."""


class Verdict(Enum):
    """The judgement on an open transaction; values are those of ``--json`` and of the metrics of ``txn watch``."""

    HANGING = "hanging"
    SUSPECTED = "suspected"
    LIVE = "live"
    TWO_PHASE = "two_phase"


class ReasonCode(Enum):
    """The relation of the coordinator's entry to the open transaction; ``RULES`` has what follows from each."""

    ONGOING = "ongoing"
    """Ongoing under the same producer id and epoch, and the partition is listed."""
    TWO_PHASE = "two_phase"
    """The same, with the time-out that never fires. The entry's producer id or epoch may be that of a new instance,
    for which the prepared transaction is kept (KIP-939)."""
    COMPLETING = "completing"
    """Decided, and this partition's marker is still to be written."""
    BEHIND = "behind"
    """The partition is listed, but under an older epoch than the partition has seen."""
    MOVED_ON = "moved_on"
    """The transactional id has a newer epoch or another producer id by now."""
    ENDED = "ended"
    """This very transaction has ended, or is ending without a marker for this partition; or none was begun."""
    NOT_LISTED = "not_listed"
    """Ongoing under the same producer id and epoch, without this partition."""
    FORGOTTEN = "forgotten"
    """No coordinator has an entry, and all have answered; or the entry is older and does not list the partition."""
    UNANSWERED = "unanswered"
    """No coordinator that answered has an entry, and not all that could have one have answered."""


class AbortMarker(Enum):
    """The right of an administrator to end an open transaction by an abort marker on its partition."""

    TAKEN = auto()
    """The leader takes it. The tool sends it without force only where the verdict is HANGING."""
    IF_FORCED = auto()
    """The coordinator is going to end it: the marker tears it where it has other partitions, so only by force."""
    NEVER = auto()
    """The outcome is decided, or will be by whoever prepared it. Not even by force: a marker could contradict that."""


class Rule(NamedTuple):
    """The verdict of a reason code, the broker's word for it, and the ways out."""

    verdict: Verdict
    reported_as: str
    """The broker's own word: in DescribeProducers, the label ``verdict`` of its metrics, and the audit log."""
    marker: AbortMarker
    force_terminate: bool = False
    """The coordinator can be made to end it by a new instance of its producer (``oncelog txn force-terminate``)."""


class CoordinatorEntry(NamedTuple):
    """A transactional id as its coordinator has it, as far as one partition is concerned."""

    state: str
    """The name that DescribeTransactions gives it."""
    timeout_ms: int
    producer_id: int
    producer_epoch: int
    lists_partition: bool
    """True if the partition is in the transaction, or, once that is decided, waits for its marker."""


class _Entry(Enum):
    """The state of an entry, as far as it matters here."""

    ONGOING = auto()
    TWO_PHASE = auto()
    """Ongoing, with a time-out that never fires."""
    DECIDED = auto()
    AT_REST = auto()
    """Nothing is open: Empty, CompleteCommit, CompleteAbort, Dead, or a state that is not known here."""


class _Producer(Enum):
    """The producer of an entry beside that of the open transaction."""

    SAME = auto()
    NEWER_EPOCH = auto()
    OLDER_EPOCH = auto()
    OTHER_ID = auto()


_LISTED: Final = True
_UNLISTED: Final = False
_REASON_CODES: Final[dict[tuple[_Entry, bool], dict[_Producer, ReasonCode]]] = {
    (_Entry.ONGOING, _LISTED): {
        _Producer.SAME: ReasonCode.ONGOING,
        _Producer.NEWER_EPOCH: ReasonCode.MOVED_ON,
        _Producer.OLDER_EPOCH: ReasonCode.BEHIND,
        _Producer.OTHER_ID: ReasonCode.MOVED_ON,
    },
    (_Entry.ONGOING, _UNLISTED): {
        _Producer.SAME: ReasonCode.NOT_LISTED,
        _Producer.NEWER_EPOCH: ReasonCode.MOVED_ON,
        _Producer.OLDER_EPOCH: ReasonCode.FORGOTTEN,
        _Producer.OTHER_ID: ReasonCode.MOVED_ON,
    },
    (_Entry.TWO_PHASE, _LISTED): {
        _Producer.SAME: ReasonCode.TWO_PHASE,
        _Producer.NEWER_EPOCH: ReasonCode.TWO_PHASE,
        _Producer.OLDER_EPOCH: ReasonCode.BEHIND,
        _Producer.OTHER_ID: ReasonCode.TWO_PHASE,
    },
    (_Entry.TWO_PHASE, _UNLISTED): {
        _Producer.SAME: ReasonCode.NOT_LISTED,
        _Producer.NEWER_EPOCH: ReasonCode.MOVED_ON,
        _Producer.OLDER_EPOCH: ReasonCode.FORGOTTEN,
        _Producer.OTHER_ID: ReasonCode.MOVED_ON,
    },
    (_Entry.DECIDED, _LISTED): {
        _Producer.SAME: ReasonCode.COMPLETING,
        # The decision itself raises the epoch with Transactions V2, and when a producer is fenced (KIP-890).
        _Producer.NEWER_EPOCH: ReasonCode.COMPLETING,
        _Producer.OLDER_EPOCH: ReasonCode.BEHIND,
        _Producer.OTHER_ID: ReasonCode.MOVED_ON,
    },
    (_Entry.DECIDED, _UNLISTED): {
        _Producer.SAME: ReasonCode.ENDED,
        _Producer.NEWER_EPOCH: ReasonCode.MOVED_ON,
        _Producer.OLDER_EPOCH: ReasonCode.FORGOTTEN,
        _Producer.OTHER_ID: ReasonCode.MOVED_ON,
    },
    (_Entry.AT_REST, _LISTED): {
        _Producer.SAME: ReasonCode.ENDED,
        _Producer.NEWER_EPOCH: ReasonCode.MOVED_ON,
        _Producer.OLDER_EPOCH: ReasonCode.BEHIND,
        _Producer.OTHER_ID: ReasonCode.MOVED_ON,
    },
    (_Entry.AT_REST, _UNLISTED): {
        _Producer.SAME: ReasonCode.ENDED,
        _Producer.NEWER_EPOCH: ReasonCode.MOVED_ON,
        _Producer.OLDER_EPOCH: ReasonCode.FORGOTTEN,
        _Producer.OTHER_ID: ReasonCode.MOVED_ON,
    },
}
"""(State of the entry, whether it lists the partition) → its producer beside the partition's → reason code."""

REPORTED_YOUNG: Final = "young"
"""Too young to be judged; no reason code has it."""
REPORTED_LIVE: Final = "live"
REPORTED_COMPLETING: Final = "completing"
REPORTED_TWO_PHASE: Final = "two_phase"
REPORTED_HANGING: Final = "hanging"
REPORTED_UNKNOWN: Final = "unknown"
REPORTED: Final = (
    REPORTED_YOUNG,
    REPORTED_LIVE,
    REPORTED_COMPLETING,
    REPORTED_TWO_PHASE,
    REPORTED_HANGING,
    REPORTED_UNKNOWN,
)
"""All words that a broker reports, in the order of its metrics. Users have dashboards and scripts with them."""

RULES: Final[dict[ReasonCode, Rule]] = {
    ReasonCode.ONGOING: Rule(Verdict.LIVE, REPORTED_LIVE, AbortMarker.IF_FORCED, force_terminate=True),
    ReasonCode.TWO_PHASE: Rule(Verdict.TWO_PHASE, REPORTED_TWO_PHASE, AbortMarker.NEVER, force_terminate=True),
    ReasonCode.COMPLETING: Rule(Verdict.LIVE, REPORTED_COMPLETING, AbortMarker.NEVER),
    ReasonCode.BEHIND: Rule(Verdict.SUSPECTED, REPORTED_UNKNOWN, AbortMarker.TAKEN),
    ReasonCode.MOVED_ON: Rule(Verdict.HANGING, REPORTED_HANGING, AbortMarker.TAKEN),
    ReasonCode.ENDED: Rule(Verdict.HANGING, REPORTED_HANGING, AbortMarker.TAKEN),
    ReasonCode.NOT_LISTED: Rule(Verdict.HANGING, REPORTED_HANGING, AbortMarker.TAKEN),
    ReasonCode.FORGOTTEN: Rule(Verdict.HANGING, REPORTED_HANGING, AbortMarker.TAKEN),
    ReasonCode.UNANSWERED: Rule(Verdict.SUSPECTED, REPORTED_UNKNOWN, AbortMarker.TAKEN),
}
"""Reason code → verdict, the broker's word, and the ways out."""


def classify(entry: CoordinatorEntry, producer_id: int, producer_epoch: int) -> ReasonCode:
    """The reason code of the transaction that this producer has open on the partition ``entry`` speaks about."""
    row = _REASON_CODES[_state_of(entry), entry.lists_partition]
    if entry.producer_id != producer_id:
        return row[_Producer.OTHER_ID]
    if entry.producer_epoch == producer_epoch:
        return row[_Producer.SAME]
    return row[_Producer.NEWER_EPOCH if entry.producer_epoch > producer_epoch else _Producer.OLDER_EPOCH]


def classify_without_entry(*, all_answered: bool) -> ReasonCode:
    """The reason code where no coordinator that answered has an entry of the producer or its transactional id."""
    return ReasonCode.FORGOTTEN if all_answered else ReasonCode.UNANSWERED


def _state_of(entry: CoordinatorEntry) -> _Entry:
    if entry.state == ONGOING_STATE:
        return _Entry.TWO_PHASE if entry.timeout_ms == NEVER_TIMES_OUT else _Entry.ONGOING
    return _Entry.DECIDED if entry.state in DECIDED_STATES else _Entry.AT_REST


def leader_takes_marker(code: ReasonCode, *, forced: bool) -> bool:
    """True if a leader that knows ``code`` writes an administrator's abort marker.

    Where its coordinator has nothing certain to say the leader takes it: the administrator may have asked others.
    """
    marker = RULES[code].marker
    return marker is AbortMarker.TAKEN or (forced and marker is AbortMarker.IF_FORCED)


def tool_sends_marker(code: ReasonCode, verdict: Verdict, *, forced: bool) -> bool:
    """True if the administrator's tool sends an abort marker.

    ``verdict`` is that of ``code``, or SUSPECTED where the age or the second look was missing.
    """
    return RULES[code].marker is not AbortMarker.NEVER and (forced or verdict is Verdict.HANGING)


def late_after_ms(timeout_ms: int | None, max_timeout_ms: int) -> int:
    """The age in ms from which on an open transaction is late.

    Its own time-out, where that is known and fires; otherwise ``max_timeout_ms`` (transaction.max.timeout.ms) and five
    minutes.
    """
    if timeout_ms is not None and 0 < timeout_ms < NEVER_TIMES_OUT:
        return timeout_ms
    return max_timeout_ms + LATE_PADDING_MS
