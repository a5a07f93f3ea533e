"""Whether a transaction that is open on a partition will ever be ended: what its coordinator's word makes of it.

A partition's leader sees a producer and the offset where its transaction begins; the coordinator has the transactional
id's state. :func:`judge` compares the two, and nothing else: it knows no time, asks nobody and changes nothing.

What is found (KIP-664's rule, and what the coordinator's state adds to it):

* live: Ongoing under the same producer id and epoch, and the partition is listed. Its time-out or its client ends it.
* two_phase: the same, with the time-out that never fires (KIP-939). Only whoever prepared it may decide it: a marker
  from anybody else would tear it.
* completing: decided, and the coordinator still waits for the marker of this partition.
* orphaned: the coordinator has forgotten the id, has moved past that epoch, or does not list the partition. Nobody is
  going to end it.
* unknown: whose it is is not known, its coordinator could not be asked, or it lists the partition under an epoch older
  than the partition has seen: then nothing is certain.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Final, NamedTuple

from oncelog.base.ids import TopicPartition
from oncelog.core.transactions.model import Identity, TransactionDescription
from oncelog.core.transactions.states import PREPARED, STATE_NAMES, TransactionState
from oncelog.core.transactions.transaction import NEVER_TIMES_OUT


class Verdict(StrEnum):
    """What is said of an open transaction, in DescribeProducers too."""

    LIVE = "live"
    COMPLETING = "completing"
    TWO_PHASE = "two_phase"
    ORPHANED = "orphaned"
    UNKNOWN = "unknown"


class Finding(NamedTuple):
    """A verdict, its reason in words, and what the coordinator said of the time: −1 where it said nothing."""

    verdict: Verdict
    reason: str
    timeout_ms: int = -1
    start_ms: int = -1


_ONGOING: Final = STATE_NAMES[TransactionState.ONGOING]
_PREPARED: Final = frozenset(STATE_NAMES[state] for state in PREPARED)

ID_UNKNOWN: Final = Finding(
    Verdict.UNKNOWN, "its transactional id is not known, and no coordinator asked has its producer"
)
"""Older data, or the file of transactional ids was lost; it may be another coordinator's."""
FORGOTTEN: Final = Finding(Verdict.ORPHANED, "its coordinator does not know the transactional id (any more)")


def judge(
    found: TransactionDescription | None,
    awaited: Collection[TopicPartition],
    identity: Identity,
    partition: TopicPartition,
) -> Finding:
    """What to think of the transaction of ``identity`` that is open on ``partition``.

    ``found``: the coordinator's description of its transactional id, None when it has none; ``awaited``: the partitions
    whose markers a decided transaction waits for.
    """
    if found is None:
        return FORGOTTEN
    verdict, reason = _judged(found, awaited, identity, partition)
    return Finding(verdict, reason, found.timeout_ms, found.start_ms)


def _judged(
    found: TransactionDescription, awaited: Collection[TopicPartition], identity: Identity, partition: TopicPartition
) -> tuple[Verdict, str]:
    known = found.identity
    if known.producer_id != identity.producer_id:
        return Verdict.ORPHANED, f"its transactional id has another producer by now, {known.producer_id}"
    if found.state in _PREPARED:
        # The epoch of a decided transaction may be one higher already: it is its marker's (KIP-890).
        if partition in awaited:
            return Verdict.COMPLETING, f"its coordinator has decided it ({found.state}) and its marker is to be written"
        return Verdict.ORPHANED, f"its coordinator completes a transaction ({found.state}) that lacks this partition"
    if known.producer_epoch > identity.producer_epoch:
        return (
            Verdict.ORPHANED,
            f"its coordinator moved past that epoch: {found.state} under epoch {known.producer_epoch}",
        )
    if known.producer_epoch < identity.producer_epoch and partition in found.partitions:
        return Verdict.UNKNOWN, f"its coordinator lists the partition, but under the older epoch {known.producer_epoch}"
    if found.state != _ONGOING:
        return Verdict.ORPHANED, f"its coordinator has nothing open: {found.state}"
    if partition not in found.partitions:
        return Verdict.ORPHANED, "its coordinator does not list the partition in the transaction"
    if found.timeout_ms == NEVER_TIMES_OUT:
        return Verdict.TWO_PHASE, "whoever prepared it has to decide it: it never times out"
    return Verdict.LIVE, f"its coordinator ends it {found.timeout_ms} ms after its start, unless its client does"
