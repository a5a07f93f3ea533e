"""Requests that wait for a transaction: in order, each in one place, and none looked at to find another."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TransactionalId
from oncelog.core.transactions.identity import NO_IDENTITY
from oncelog.core.transactions.model import EndReply, EndRequest
from oncelog.core.transactions.soft_state import ParkedRequest, Parking, Timers

A, B = TransactionalId("a"), TransactionalId("b")


class Counted(ParkedRequest):
    """Counts how often anything of it is looked at."""

    __slots__ = ()
    looks = 0

    def __getattribute__(self, name):
        Counted.looks += 1
        return super().__getattribute__(name)

    def __eq__(self, other):
        Counted.looks += 1
        return self is other

    __hash__ = None


def waiting(token: int, transactional_id: TransactionalId = A) -> ParkedRequest:
    return Counted(token, EndRequest(transactional_id, NO_IDENTITY, committed=True))


@pytest.fixture
def parking() -> Parking:
    return Parking(Timers())


def test_in_order_of_arrival(parking):
    for token in (3, 1, 2):
        parking.park(waiting(token), 10)
    parking.park(waiting(4, B), 10)
    parking.make_ready(A)
    assert not parking.is_parked(A)
    assert parking.is_parked(B)
    assert [parking.next_ready().token for _ in range(3)] == [3, 1, 2]
    assert not parking.has_ready()


def test_taken_out_wherever_it_is(parking):
    parking.park(waiting(1), 10)
    parking.park(waiting(2), 10)
    parking.park(waiting(3, B), 10)
    parking.make_ready(A)
    assert parking.remove(1).token == 1
    assert parking.remove(3).token == 3
    assert parking.remove(3) is None
    assert not parking.is_parked(B)
    assert [item.token for item in parking] == [2]


def test_a_token_that_was_parked_again_is_still_in_one_place(parking):
    parking.park(waiting(1), 10)
    parking.make_ready(A)
    parking.park(parking.next_ready(), 20)
    assert [item.token for item in parking] == [1]
    assert parking.clear(ErrorCode.NOT_COORDINATOR) == [(1, EndReply(ErrorCode.NOT_COORDINATOR))]
    assert parking.remove(1) is None


@pytest.mark.parametrize("ready", [False, True])
def test_thousands_whose_time_is_over_are_not_searched(parking, ready):
    many = 2000
    for token in range(many):
        parking.park(waiting(token), 10)
    if ready:
        parking.make_ready(A)
    Counted.looks = 0
    for token in reversed(range(many)):
        assert parking.remove(token) is not None
    assert Counted.looks <= 2 * many
    assert not list(parking)
