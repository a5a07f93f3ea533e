"""Locks as ranges, beside a dictionary of offsets; acknowledgements until they are sent."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from oncelog.client.machine.share.locks import LOST, AcknowledgementQueue, Lock, Locks, Pending
from oncelog.client.machine.share.values import Acknowledge, SharePartition

P = SharePartition(b"t" * 16, 0)


def by_offset(locks: Locks) -> dict[int, tuple[int, int, int]]:
    ranges = [lock for _, lock in locks.items()]
    assert all(lower.last_offset < upper.first_offset for lower, upper in pairwise(ranges))
    return {
        offset: (lock.delivery_count, lock.until_ms, lock.leader)
        for lock in ranges
        for offset in range(lock.first_offset, lock.last_offset + 1)
    }


@pytest.mark.parametrize("seed", range(20))
def test_locks_are_a_dictionary_of_offsets(seed: int) -> None:
    entropy, locks, model = random.Random(seed), Locks(), dict[int, tuple[int, int, int]]()
    for step in range(100):
        first = entropy.randrange(40)
        offsets = range(first, first + entropy.randint(1, 8))
        match entropy.randrange(6):
            case 0 | 1:
                value = (step, entropy.randrange(100), entropy.randrange(3))
                locks.add(P, Lock(offsets[0], offsets[-1], *value))
                model |= dict.fromkeys(offsets, value)
            case 2:
                taken = locks.take(P, offsets[0], offsets[-1])
                assert sum(lock.last_offset - lock.first_offset + 1 for lock in taken) == len(model.keys() & offsets)
                model = {offset: value for offset, value in model.items() if offset not in offsets}
            case 3:
                within = locks.within(P, offsets[0], offsets[-1])
                assert sum(lock.last_offset - lock.first_offset + 1 for lock in within) == len(model.keys() & offsets)
                lock = locks.at(P, first)
                assert (None if lock is None else tuple(lock[2:])) == model.get(first)
            case 4:
                locks.renewed(P, Pending(offsets[0], offsets[-1], Acknowledge.RENEW, 0), 100 + step)
                model |= {at: (model[at][0], 100 + step, model[at][2]) for at in model.keys() & offsets}
            case 5:
                before_ms = entropy.randrange(20)
                locks.drop_expired(before_ms)
                locks.lose(2)
                model = {
                    at: (count, until_ms, LOST if leader == 2 else leader)
                    for at, (count, until_ms, leader) in model.items()
                    if until_ms >= before_ms
                }
        assert by_offset(locks) == model


def test_acknowledgements_are_joined_sorted_and_replace_renewals() -> None:
    queue = AcknowledgementQueue()
    assert not queue
    for first, last, kind in ((5, 5, 1), (6, 7, 1), (8, 8, 2), (0, 4, 4), (2, 2, 3)):
        queue.add(P, Pending(first, last, Acknowledge(kind), 9))
    assert queue.has_renewals
    assert [(p.first_offset, p.last_offset, p.kind.name) for p in queue.take(0)[P]] == [
        (0, 1, "RENEW"),
        (2, 2, "REJECT"),
        (3, 4, "RENEW"),
        (5, 7, "ACCEPT"),
        (8, 8, "RELEASE"),
    ]
    assert not queue


def test_acknowledgements_of_a_former_delivery_are_cut_out() -> None:
    queue = AcknowledgementQueue()
    queue.add(P, Pending(0, 9, Acknowledge.ACCEPT, 0))
    assert [(p.first_offset, p.last_offset) for p in queue.cut(P, 3, 4)] == [(3, 4)]
    assert queue.cut(P, 20, 30) == []
    assert [(p.first_offset, p.last_offset) for p in queue.take(0)[P]] == [(0, 2), (5, 9)]
    queue.add(P, Pending(0, 9, Acknowledge.ACCEPT, 0))
    assert [(p.first_offset, p.last_offset) for p in queue.cut(P, 0, 100)] == [(0, 9)]
    assert not queue


def test_ranges_whose_locks_may_have_ended_and_those_apart_go_in_later_requests() -> None:
    queue = AcknowledgementQueue()
    for first, last, until_ms in ((0, 0, 5), (1, 3, 9), (4, 4, 9), (7, 7, 5)):
        queue.add(P, Pending(first, last, Acknowledge.ACCEPT, until_ms))
    queue.add_apart(P, [Pending(20, 20, Acknowledge.RENEW, 3)])
    assert queue.has_renewals
    assert [(p.first_offset, p.last_offset) for p in queue.take(5)[P]] == [(1, 4)]
    assert queue.has_apart
    queue.add(P, Pending(10, 11, Acknowledge.ACCEPT, 20))
    queue.add(P, Pending(20, 20, Acknowledge.ACCEPT, 20))  # replaces the renewal
    assert not queue.has_renewals
    assert [(p.first_offset, p.last_offset) for p in queue.take(5)[P]] == [(10, 11), (20, 20)]
    assert [(p.first_offset, p.last_offset) for p in queue.take(5)[P]] == [(0, 0), (7, 7)]
    assert not queue


def test_everything_is_taken_at_once_for_a_connection_that_has_ended() -> None:
    queue = AcknowledgementQueue()
    queue.add(P, Pending(4, 5, Acknowledge.ACCEPT, 9))
    queue.add_apart(P, [Pending(0, 1, Acknowledge.RENEW, 3)])
    assert [(p.first_offset, p.last_offset) for p in queue.take_all()[P]] == [(0, 1), (4, 5)]
    assert not queue
    assert not queue.has_renewals
    assert not queue.has_apart
