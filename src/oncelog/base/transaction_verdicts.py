"""The decision table for hanging transactions (KIP-664), shared by the broker, the admin tool, the audit and the
simulator.

An open transaction on a partition holds back every ``read_committed`` consumer, rightly so as long as its coordinator
is going to end it. It *hangs* when no coordinator will ever write its marker on this partition. ``_REASON_CODES`` maps
three facts (the state of the coordinator's entry, whether it lists the partition, and how its producer compares with
the partition's) to a :class:`ReasonCode`; ``RULES`` has the consequences. See docs/internals/hanging-transactions.md.

1. The coordinator outweighs any clock: a transaction that it lists does not hang, however old its timestamps.
2. A missing answer is no evidence: FORGOTTEN needs an answer from every coordinator that could have the id.
3. An entry with an older epoch than the partition's means that a coordinator has lost state. If it still lists the
   partition, nothing is certain: the partition would reject its marker.
4. A reason code assumes two consistent answers. Over the network, read the partition a second time before reporting
   "hanging": a transaction that ends between the two answers looks the same. To exclude a marker that is still on its
   way, require an age too: :func:`late_after_ms`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from oncelog.base.units import INT32_MAX, MINUTE_MS

NEVER_TIMES_OUT: Final = INT32_MAX
"""The time-out of two-phase commit (KIP-939): the coordinator never aborts such a transaction."""
LATE_PADDING_MS: Final = 5 * MINUTE_MS
"""Added to transaction.max.timeout.ms: an older transaction is late whatever its time-out (KIP-664)."""

ONGOING_STATE: Final = "Ongoing"
DECIDED_STATES: Final = frozenset({"PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""The outcome is fixed; the entry lists the partitions that still need a marker."""


class Verdict(Enum):
    """The verdict on an open transaction; values appear in ``--json`` output and the metrics of ``txn watch``."""

    HANGING = "hanging"
    SUSPECTED = "suspected"
    LIVE = "live"
    TWO_PHASE = "two_phase"


class ReasonCode(Enum):
    """How the coordinator's entry relates to the open transaction; ``RULES`` has the consequences."""

    ONGOING = "ongoing"
    """Ongoing with the same producer id and epoch, and the partition is listed."""
    TWO_PHASE = "two_phase"
    """The same, with a time-out that never fires. The producer id or epoch may belong to a new instance, for which the
    prepared transaction is kept (KIP-939).
    """
    COMPLETING = "completing"
    """Decided; the marker for this partition is still to be written."""
    BEHIND = "behind"
    """The partition is listed, but with an older epoch than the partition has seen."""
    MOVED_ON = "moved_on"
    """The transactional id now has a newer epoch or another producer id."""
    ENDED = "ended"
    """This transaction has ended, or is ending without a marker for this partition, or never began."""
    NOT_LISTED = "not_listed"
    """Ongoing with the same producer id and epoch, without this partition."""
    FORGOTTEN = "forgotten"
    """All coordinators have answered and none has an entry; or the entry is older and does not list the partition."""
    UNANSWERED = "unanswered"
    """No answer has an entry, and some coordinators that could have one have not answered."""


class AbortMarker(Enum):
    """When an administrator may end an open transaction with an abort marker on its partition."""

    TAKEN = auto()
    """The leader accepts it. Without force the tool sends it only if the verdict is HANGING."""
    IF_FORCED = auto()
    """The coordinator will end it. A marker could split a transaction over several partitions, so it needs force."""
    NEVER = auto()
    """The outcome is decided, or will be by an external manager. A marker could contradict it, so not even with force.
    """


class Rule(NamedTuple):
    """The verdict of a reason code, the broker's word for it, and the ways to end the transaction."""

    verdict: Verdict
    reported_as: str
    """The broker's word: in DescribeProducers, the metric label ``verdict``, and the audit log."""
    marker: AbortMarker
    force_terminate: bool = False
    """The coordinator can end it by fencing its producer (``oncelog txn force-terminate``)."""


class CoordinatorEntry(NamedTuple):
    """The coordinator's entry for a transactional id, as far as it concerns one partition."""

    state: str
    """The state name of DescribeTransactions."""
    timeout_ms: int
    producer_id: int
    producer_epoch: int
    lists_partition: bool
    """True if the partition is in the transaction or, after the decision, waits for its marker."""


class _Entry(Enum):
    """The relevant part of an entry's state."""

    ONGOING = auto()
    TWO_PHASE = auto()
    """Ongoing, with a time-out that never fires."""
    DECIDED = auto()
    AT_REST = auto()
    """Nothing is open: Empty, CompleteCommit, CompleteAbort, Dead, or an unknown state."""


class _Producer(Enum):
    """How the entry's producer compares with that of the open transaction."""

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
"""(Entry state, lists the partition?) → producer compared with the partition's → reason code."""

REPORTED_YOUNG: Final = "young"
"""Too young to judge; not the result of a reason code."""
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
"""All words that a broker reports, in the order of its metrics. Dashboards and scripts depend on them."""

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


def classify(entry: CoordinatorEntry, producer_id: int, producer_epoch: int) -> ReasonCode:
    """The reason code of this producer's open transaction on the partition of ``entry``."""
    row = _REASON_CODES[_state_of(entry), entry.lists_partition]
    if entry.producer_id != producer_id:
        return row[_Producer.OTHER_ID]
    if entry.producer_epoch == producer_epoch:
        return row[_Producer.SAME]
    return row[_Producer.NEWER_EPOCH if entry.producer_epoch > producer_epoch else _Producer.OLDER_EPOCH]


def classify_without_entry(*, all_answered: bool) -> ReasonCode:
    """The reason code when no answer has an entry for the producer or its transactional id."""
    return ReasonCode.FORGOTTEN if all_answered else ReasonCode.UNANSWERED


def _state_of(entry: CoordinatorEntry) -> _Entry:
    if entry.state == ONGOING_STATE:
        return _Entry.TWO_PHASE if entry.timeout_ms == NEVER_TIMES_OUT else _Entry.ONGOING
    return _Entry.DECIDED if entry.state in DECIDED_STATES else _Entry.AT_REST


def leader_takes_marker(code: ReasonCode, *, forced: bool) -> bool:
    """True if a leader that knows ``code`` accepts an administrator's abort marker."""
    marker = RULES[code].marker
    # TAKEN covers uncertain codes too: the administrator may have other evidence.
    return marker is AbortMarker.TAKEN or (forced and marker is AbortMarker.IF_FORCED)


def tool_sends_marker(code: ReasonCode, verdict: Verdict, *, forced: bool) -> bool:
    """True if the administrator's tool sends an abort marker. ``verdict`` is that of ``code``, or SUSPECTED if the age
    or the second read is missing."""
    return RULES[code].marker is not AbortMarker.NEVER and (forced or verdict is Verdict.HANGING)


def late_after_ms(timeout_ms: int | None, max_timeout_ms: int) -> int:
    """The age in ms from which an open transaction is late: its finite time-out, otherwise ``max_timeout_ms``
    (transaction.max.timeout.ms) plus five minutes."""
    if timeout_ms is not None and 0 < timeout_ms < NEVER_TIMES_OUT:
        return timeout_ms
    return max_timeout_ms + LATE_PADDING_MS
