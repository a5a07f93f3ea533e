"""What a coordinator's word makes of a transaction that is open on a partition: the whole table."""

from __future__ import annotations

import pytest

from oncelog.base.ids import ProducerEpoch, ProducerId, TopicName, TopicPartition, TransactionalId
from oncelog.core.transactions.hanging import Verdict, judge
from oncelog.core.transactions.model import Identity, TransactionDescription
from oncelog.core.transactions.transaction import NEVER_TIMES_OUT

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
    ("found", "awaits", "verdict"),
    [
        (None, False, Verdict.ORPHANED),
        (described("Ongoing"), False, Verdict.LIVE),
        (described("Ongoing", timeout_ms=NEVER_TIMES_OUT), False, Verdict.TWO_PHASE),
        (described("Ongoing", lists=False), False, Verdict.ORPHANED),
        (described("Ongoing", lists=False, timeout_ms=NEVER_TIMES_OUT), False, Verdict.ORPHANED),
        (described("Ongoing", EPOCH + 1), False, Verdict.ORPHANED),
        (described("Ongoing", EPOCH - 1), False, Verdict.UNKNOWN),
        (described("Ongoing", EPOCH - 1, lists=False), False, Verdict.ORPHANED),
        (described("Ongoing", producer_id=8), False, Verdict.ORPHANED),
        *((described(f"Prepare{e}", epoch), True, Verdict.COMPLETING) for e in ("Commit", "Abort") for epoch in (5, 6)),
        (described("PrepareCommit", lists=False), False, Verdict.ORPHANED),
        (described("PrepareCommit"), False, Verdict.ORPHANED),  # this partition has its marker: what came is late
        (described("PrepareAbort", producer_id=8), True, Verdict.ORPHANED),
        (described("Empty", lists=False), False, Verdict.ORPHANED),
        (described("CompleteCommit", lists=False), False, Verdict.ORPHANED),
        (described("CompleteAbort", lists=False), False, Verdict.ORPHANED),
        (described("CompleteCommit", EPOCH + 1, lists=False), False, Verdict.ORPHANED),
        (described("Empty", EPOCH - 1, lists=False), False, Verdict.ORPHANED),
    ],
)  # fmt: skip
def test_verdict(found: TransactionDescription | None, awaits: bool, verdict: Verdict) -> None:
    finding = judge(found, (HERE,) if awaits else (ELSEWHERE,), MINE, HERE)
    assert finding.verdict is verdict
    assert finding.timeout_ms == (-1 if found is None else found.timeout_ms)
