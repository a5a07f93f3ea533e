"""Findings about a transaction that is open on a partition, from its coordinator's description, with their reasons."""

from __future__ import annotations

import pytest

from oncelog.base.ids import ProducerEpoch, ProducerId, TopicName, TopicPartition, TransactionalId
from oncelog.base.transaction_verdicts import NEVER_TIMES_OUT, ReasonCode
from oncelog.core.transactions.classification import classify
from oncelog.core.transactions.identity import Identity
from oncelog.core.transactions.model import TransactionDescription
from oncelog.core.transactions.states import STATE_NAMES, TransactionState

HERE = TopicPartition(TopicName("t"), 0)
ELSEWHERE = TopicPartition(TopicName("t"), 1)
EPOCH = 5
MINE = Identity(ProducerId(7), ProducerEpoch(EPOCH))


def described(
    state: str, epoch: int = EPOCH, producer_id: int = 7, *, lists: bool = True, timeout_ms: int = 1000
) -> TransactionDescription:
    identity = Identity(ProducerId(producer_id), ProducerEpoch(epoch))
    partitions = (ELSEWHERE, HERE) if lists else (ELSEWHERE,)
    return TransactionDescription(TransactionalId("x"), state, identity, timeout_ms, 1, partitions)


@pytest.mark.parametrize(
    ("description", "awaits", "code", "reason"),
    [
        (None, False, ReasonCode.FORGOTTEN, "does not know the transactional id"),
        (described("Ongoing"), False, ReasonCode.ONGOING, "ends it 1000 ms after its start"),
        (described("Ongoing", timeout_ms=NEVER_TIMES_OUT), False, ReasonCode.TWO_PHASE, "it never times out"),
        (described("Ongoing", lists=False), False, ReasonCode.NOT_LISTED, "does not list the partition"),
        (described("Ongoing", EPOCH + 1), False, ReasonCode.MOVED_ON, "moved past that epoch: Ongoing under epoch 6"),
        (described("Ongoing", EPOCH - 1), False, ReasonCode.BEHIND, "under the older epoch 4"),
        (described("Ongoing", EPOCH - 1, lists=False), False, ReasonCode.FORGOTTEN, "only the older epoch 4: Ongoing"),
        (described("Ongoing", producer_id=8), False, ReasonCode.MOVED_ON, "another producer by now, 8"),
        (described("PrepareCommit"), True, ReasonCode.COMPLETING, "has decided it (PrepareCommit)"),
        (described("PrepareAbort", EPOCH + 1), True, ReasonCode.COMPLETING, "has decided it (PrepareAbort)"),
        # Its own marker would be refused: nobody but an administrator can end it.
        (described("PrepareAbort", EPOCH - 1), True, ReasonCode.BEHIND, "under the older epoch 4"),
        # The partition is in the transaction and has its marker: what came after that is late.
        (described("PrepareCommit"), False, ReasonCode.ENDED, "(PrepareCommit) that lacks this partition"),
        (described("PrepareCommit", EPOCH + 1), False, ReasonCode.MOVED_ON, "(PrepareCommit) that lacks"),
        (described("PrepareAbort", producer_id=8), True, ReasonCode.MOVED_ON, "another producer by now, 8"),
        (described("Empty", lists=False), False, ReasonCode.ENDED, "has nothing open: Empty"),
        (described("CompleteCommit", lists=False), False, ReasonCode.ENDED, "has nothing open: CompleteCommit"),
        (described("CompleteAbort", EPOCH + 1, lists=False), False, ReasonCode.MOVED_ON, "CompleteAbort under epoch 6"),
        (described("Empty", EPOCH - 1, lists=False), False, ReasonCode.FORGOTTEN, "only the older epoch 4: Empty"),
    ],
)
def test_finding(description: TransactionDescription | None, awaits: bool, code: ReasonCode, reason: str) -> None:
    finding = classify(description, (HERE,) if awaits else (ELSEWHERE,), MINE, HERE)
    assert finding.code is code
    assert reason in finding.reason
    assert finding.timeout_ms == (-1 if description is None else description.timeout_ms)


@pytest.mark.parametrize("state", TransactionState)
@pytest.mark.parametrize("lists", [False, True])
def test_every_state_has_a_reason_without_gaps(state: TransactionState, lists: bool) -> None:
    for epoch in (EPOCH - 1, EPOCH, EPOCH + 1):
        for producer_id in (7, 8):
            description = described(STATE_NAMES[state], epoch, producer_id, lists=lists)
            finding = classify(description, (HERE,) if lists else (), MINE, HERE)
            assert "{" not in finding.reason
            assert finding.reported_as in ("live", "completing", "two_phase", "hanging", "unknown")
