"""Transactional ids that wait for their records to be durable."""

from __future__ import annotations

import time

from oncelog.base.ids import Offset, TransactionalId
from oncelog.node.coordinators.transaction_coordinators import PendingIds


def test_an_id_waits_for_its_last_record() -> None:
    pending = PendingIds()
    one, other = TransactionalId("one"), TransactionalId("other")
    pending.appended([one, other], Offset(2), Offset(0))
    pending.appended([one], Offset(3), Offset(2))
    assert (pending.end_of(one), pending.end_of(other)) == (3, None)
    pending.appended([], Offset(3), Offset(3))
    assert pending.end_of(one) is None


def test_many_that_become_durable_at_once_are_forgotten_in_linear_time() -> None:
    took_s = []
    for count in (3_000, 24_000):
        pending = PendingIds()
        pending.appended([TransactionalId(str(number)) for number in range(count)], Offset(1), Offset(0))
        started_s = time.thread_time()
        pending.appended([], Offset(1), Offset(1))
        took_s.append(time.thread_time() - started_s)
    assert took_s[1] < 32 * took_s[0] + 0.01, "eight times as many: not sixty-four times as long"
