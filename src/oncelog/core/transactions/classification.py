"""The coordinator's verdict on a transaction that is open on a partition, as a finding with its reason.

The decision table is ``base.transaction_verdicts``; :func:`classify` words the reason.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from oncelog.base import transaction_verdicts
from oncelog.base.ids import TopicPartition
from oncelog.base.transaction_verdicts import (
    DECIDED_STATES,
    RULES,
    CoordinatorEntry,
    ReasonCode,
    Verdict,
    classify_without_entry,
)
from oncelog.core.transactions.identity import Identity
from oncelog.core.transactions.model import TransactionDescription


class Finding(NamedTuple):
    """A reason code, the reason in words, and the coordinator's times in ms (−1 if unknown)."""

    code: ReasonCode
    reason: str
    timeout_ms: int = -1
    start_ms: int = -1

    @property
    def verdict(self) -> Verdict:
        return RULES[self.code].verdict

    @property
    def reported_as(self) -> str:
        """The broker's word for it, in DescribeProducers, metrics and the audit log."""
        return RULES[self.code].reported_as


ID_UNKNOWN: Final = Finding(
    ReasonCode.UNANSWERED, "its transactional id is unknown, and no coordinator that answered has its producer"
)
"""The data is old, or the file of transactional ids was lost; it may belong to another coordinator."""
COORDINATOR_NOT_AVAILABLE: Final = Finding(ReasonCode.UNANSWERED, "its coordinator is not available")
FORGOTTEN: Final = Finding(
    classify_without_entry(all_answered=True), "its coordinator does not know the transactional id"
)

_REASONS: Final[dict[ReasonCode, str]] = {
    ReasonCode.ONGOING: "its coordinator ends it {timeout_ms} ms after its start, unless its client does",
    ReasonCode.TWO_PHASE: "its external transaction manager has to decide it: it never times out",
    ReasonCode.COMPLETING: "its coordinator has decided it ({state}) and its marker is to be written",
    ReasonCode.BEHIND: "its coordinator lists the partition, but under the older epoch {epoch}",
    ReasonCode.MOVED_ON: "its coordinator moved past that epoch: {state} under epoch {epoch}",
    ReasonCode.ENDED: "its coordinator has nothing open: {state}",
    ReasonCode.NOT_LISTED: "its coordinator does not list the partition in the transaction",
    ReasonCode.FORGOTTEN: "its coordinator does not list the partition, and has only the older epoch {epoch}: {state}",
}
_OTHER_PRODUCER: Final = "its transactional id has another producer by now, {producer_id}"
_DECIDED_WITHOUT: Final = "its coordinator completes a transaction ({state}) that lacks this partition"


def classify(
    description: TransactionDescription | None,
    awaited: Collection[TopicPartition],
    identity: Identity,
    partition: TopicPartition,
) -> Finding:
    """The finding about the transaction that ``identity`` has open on ``partition``.

    ``description`` is the coordinator's entry for its transactional id, or None. ``awaited`` are the partitions that a
    decided transaction still waits for.
    """
    if description is None:
        return FORGOTTEN
    is_decided = description.state in DECIDED_STATES
    current = description.identity
    entry = CoordinatorEntry(
        description.state,
        description.timeout_ms,
        current.producer_id,
        current.producer_epoch,
        partition in (awaited if is_decided else description.partitions),
    )
    code = transaction_verdicts.classify(entry, identity.producer_id, identity.producer_epoch)
    reason = _REASONS[code]
    if RULES[code].verdict is Verdict.HANGING:
        if current.producer_id != identity.producer_id:
            reason = _OTHER_PRODUCER
        elif is_decided:
            reason = _DECIDED_WITHOUT
    text = reason.format(
        state=description.state,
        epoch=current.producer_epoch,
        producer_id=current.producer_id,
        timeout_ms=description.timeout_ms,
    )
    return Finding(code, text, description.timeout_ms, description.start_ms)
