"""The cost of a share partition follows the changes: many small ones do not each pay for all others."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import Offset
from oncelog.core.share.model import Acknowledgement, ShareSettings, ShareState
from oncelog.core.share.partition import SharePartition
from oncelog.core.share.transitions import StateWrite
from tests.conformance.share.log import LogBatch
from tests.unit.core.share.partitions import ACCEPT, ALICE, REJECT, RELEASE, RENEW

SMALL, LARGE = 250, 2000
MOST = 5 * LARGE // SMALL // 2
"""The factor of time, where each change for itself makes it 8, and all of them for each 64."""


def acquired(count: int) -> SharePartition:
    """One batch of ``count`` records, all of them acquired."""
    state = ShareState(0, Offset(0), -1, ())
    partition = SharePartition(state, ShareSettings(max_in_flight=10_000, may_renew=True))
    acquire(partition, count, count, 0)
    return partition


def acquire(partition: SharePartition, count: int, most: int, now_ms: int) -> int:
    batches = partition.acquire(
        ALICE,
        [LogBatch(0, count - 1, -1, "plain")],  # type: ignore[list-item]
        fetch_offset=partition.next_fetch_offset(),
        record_limit=True,
        batch_size=500,
        max_records=most,
        now_ms=now_ms,
    )
    return sum(batch.last_offset - batch.first_offset + 1 for batch in batches)


def acknowledge_each(count: int) -> Callable[[], object]:
    partition = acquired(count)
    each = [Acknowledgement(Offset(n), Offset(n), [REJECT if n % 2 else ACCEPT]) for n in range(count)]
    return lambda: partition.acknowledge(ALICE, each, 0)


def expire_each(count: int) -> Callable[[], object]:
    partition = acquired(count)
    for n in range(count):
        partition.acknowledge(ALICE, [Acknowledgement(Offset(n), Offset(n), [RENEW])], n)
    return lambda: partition.expire(1_000_000)


def acquire_each(count: int) -> Callable[[], object]:
    partition = acquired(count)
    write = partition.acknowledge(ALICE, [Acknowledgement(Offset(0), Offset(count - 1), [RELEASE])], 0)
    assert isinstance(write, StateWrite)
    partition.written(write, ErrorCode.NONE)
    return lambda: [acquire(partition, count, 1, n) for n in range(count)]


def finish_each(count: int) -> Callable[[], object]:
    """Records that are done one by one, in states that do not join: the start passes over each once."""
    partition = acquired(count)
    writes = [
        partition.acknowledge(ALICE, [Acknowledgement(Offset(n), Offset(n), [REJECT if n % 2 else ACCEPT])], 0)
        for n in range(count)
    ]
    return lambda: [partition.written(write, ErrorCode.NONE) for write in writes if isinstance(write, StateWrite)]


def cost(work: Callable[[int], Callable[[], object]], count: int) -> float:
    """The lesser CPU of two tries."""
    costs = []
    for _ in range(2):
        task = work(count)
        before = time.process_time()
        task()
        costs.append(time.process_time() - before)
    return min(costs)


@pytest.mark.parametrize("work", [acknowledge_each, expire_each, acquire_each, finish_each])
def test_many_small_changes_do_not_each_pay_for_all(work: Callable[[int], Callable[[], object]]) -> None:
    assert cost(work, LARGE) < MOST * cost(work, SMALL)
