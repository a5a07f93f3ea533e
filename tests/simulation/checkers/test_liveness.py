"""Liveness once the faults have stopped: each rule by itself, and what is close to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.sim.checkers.liveness import LIVENESS, EndState, Offsets, TransactionSeen, WaitingRequest, check_liveness

PARTITION, HELD = TopicPartition(TopicName("t"), 0), TopicPartition(TopicName("t"), 1)
GOOD = EndState(
    healed_at_ms=1000,
    bound_ms=500,
    progress={"c": 1001},
    partitions={PARTITION: Offsets(5, 5), HELD: Offsets(5, 3)},
    transactions=[
        TransactionSeen("done", "CompleteCommit"),
        TransactionSeen("prepared", "Ongoing", two_phase=True, partitions=frozenset({HELD})),
    ],
    groups={"g": "Stable", "left": "Empty"},
)
PLANTED = {
    "L1": replace(GOOD, progress={"c": 1000}),
    "L2": replace(GOOD, transactions=[*GOOD.transactions, TransactionSeen("open", "Ongoing")]),
    "L3": replace(GOOD, partitions={PARTITION: Offsets(5, 4)}),
    "L4": replace(GOOD, groups={"g": "PreparingRebalance"}),
    "L5": replace(GOOD, waiting=[WaitingRequest("7", "FetchRequest", 900)]),
}


def test_all_that_moves_is_left_alone() -> None:
    assert check_liveness(GOOD) == {}


@pytest.mark.parametrize("name", LIVENESS)
def test_what_is_stuck_is_found_and_nothing_else(name: str) -> None:
    assert check_liveness(PLANTED[name.partition(" ")[0]]).keys() == {name}


def test_a_decided_transaction_in_two_phases_may_not_wait() -> None:
    waiting = TransactionSeen("prepared", "PrepareCommit", two_phase=True)
    assert check_liveness(replace(GOOD, transactions=[*GOOD.transactions, waiting])).keys() == {
        "L2 transaction not at an end"
    }
