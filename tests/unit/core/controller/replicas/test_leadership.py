"""Decisions about one partition, as tables: what there is, who is alive, what has to be."""

from __future__ import annotations

import pytest

from oncelog.base.ids import NO_BROKER, BrokerId, LeaderEpoch
from oncelog.core.controller.image.model import UNKNOWN_BROKER_EPOCH, BrokerImage, PartitionImage
from oncelog.core.controller.replicas.leadership import ElectionRules, settled

Row = tuple[str, str, str, str]
"""In-sync set / eligible leaders / leader, the brokers, the rules, and what has to be."""


def brokers_of(text: str) -> dict[BrokerId, BrokerImage]:
    """``1 2f 3s 4n 5r``: alive; f fenced, n fenced with a new directory, s stopping, r restarted since its election."""
    results = {}
    for word in text.split():
        number, mark = BrokerId(int(word[0])), word[1:]
        results[number] = BrokerImage(
            number,
            "h",
            1,
            None,
            200 if mark == "r" else 100 + number,
            fenced=mark in ("f", "n"),
            in_controlled_shutdown=mark == "s",
            is_new_directory=mark == "n",
        )
    return results


def partition_of(text: str, replicas: str = "123", adding: str = "", removing: str = "") -> PartitionImage:
    """``12/3/1``: in-sync set, eligible leaders, leader (``-``: none)."""
    isr, elr, leader = text.split("/")
    number = NO_BROKER if leader == "-" else BrokerId(int(leader))
    return PartitionImage(
        number,
        LeaderEpoch(5),
        ids(replicas),
        ids(isr),
        3,
        UNKNOWN_BROKER_EPOCH if leader == "-" else 100 + number,
        ids(elr),
        ids(adding),
        ids(removing),
    )


def ids(digits: str) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(int(digit)) for digit in digits)


def shown(partition: PartitionImage) -> str:
    leader = "-" if partition.leader == NO_BROKER else str(partition.leader)
    return f"{''.join(map(str, partition.isr))}/{''.join(map(str, partition.elr))}/{leader}"


TABLE: list[Row] = [
    # Nothing to do.
    ("123//1", "1 2 3", "min 1", "="),
    ("12//1", "1 2 3", "min 2", "="),
    ("1/23/1", "1", "min 2", "="),
    ("23//2", "2 3", "min 1", "="),
    # Followers die: out of the set; eligible while the set is too small.
    ("123//1", "1 3", "min 1", "13//1"),
    ("123//1", "1", "min 1", "1//1"),
    ("123//1", "1", "min 2", "1/23/1"),
    ("12/3/1", "1", "min 3", "1/23/1"),
    # The leader dies: the next in the order of the assignment.
    ("123//1", "2 3", "min 1", "23//2 +"),
    ("13//1", "2 3", "min 1", "3//3 +"),
    ("321//1", "2 3", "min 1", "32//2 +"),
    ("12//1", "2 3", "min 2", "2/1/2 +"),
    # The leader has restarted: it may lead again, in a new epoch.
    ("123//1", "1r 2 3", "min 1", "123//1 +"),
    ("123//2", "1 2r 3", "min 1", "123//1 +"),
    # Nobody in sync is alive: they stay, and nobody leads.
    ("12//1", "3", "min 1", "12//- +"),
    ("1//-", "2 3", "min 1", "="),
    ("123//-", "", "min 1", "="),
    ("123//-", "2", "min 1", "2//2 +"),
    ("123//-", "2", "min 2", "2/13/2 +"),
    # An eligible leader leads, unless the set is full by the rules of now.
    ("1/2/-", "2 3", "min 2", "2/1/2 +"),
    ("1/23/1", "3", "min 2", "3/12/3 +"),
    ("1/2/-", "2", "min 1", "1//-"),
    ("/2/-", "2 3", "min 2", "2//2 +"),
    # Unclean elections.
    ("1//-", "2 3", "min 1 unclean", "2//2 +"),
    ("1/3/-", "2 3", "min 2 unclean", "3/1/3 +"),
    ("1//-", "2s 3", "min 1 unclean", "3//3 +"),
    ("1//-", "2f", "min 1 unclean", "="),
    # Brokers that stop: out of the set, and no leaders, where others remain.
    ("123//1", "1s 2 3", "min 1", "23//2 +"),
    ("123//1", "1 2s 3", "min 1", "13//1"),
    ("1//1", "1s 2 3", "min 1", "="),
    ("12//1", "1s 2s 3", "min 1", "="),
    ("12//1", "2s 3", "min 1", "2//2 +"),
    # Fenced brokers: out of everything, and never eligible.
    ("123//1", "1 2 3f", "min 1", "12//1"),
    ("12//1", "1 2f 3", "min 2", "1//1"),
    ("12//1", "1f 2 3", "min 2", "2//2 +"),
    ("1/2/1", "1 2f", "min 2", "1//1"),
    ("12//-", "1f", "min 1", "2//-"),
    ("12//-", "1n", "min 1", "2//-"),
    # The last in sync, fenced: what it has is the best there is, if it has anything.
    ("1//-", "1f", "min 1", "="),
    ("12//-", "1f 2f", "min 1", "1//-"),
    ("12//-", "1n 2f", "min 1", "2//-"),
    ("1//-", "1n 2", "min 1", "//-"),
    ("1/2/-", "1f", "min 2", "/2/-"),
    ("1/2/-", "1n 2", "min 2", "2//2 +"),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: " | ".join(row))
def test_table(row: Row) -> None:
    before, alive, rules, expected = row
    partition, brokers = partition_of(before), brokers_of(alive)
    after = settled(partition, brokers, ElectionRules(int(rules.split()[1]), "unclean" in rules))
    if expected == "=":
        assert after is partition, shown(after)
        return
    assert shown(after) == expected.removesuffix(" +")
    assert after.leader_epoch == (6 if expected.endswith("+") else 5)
    if after.leader != NO_BROKER:
        assert after.leader_broker_epoch == brokers[after.leader].epoch
    assert settled(after, brokers, ElectionRules(int(rules.split()[1]), "unclean" in rules)) is after, "one step is all"


MOVES = [
    # replicas, adding, removing, state, brokers → replicas, state
    ("3412", "34", "12", "12//1", "1 2 3 4", "=", ""),
    ("3412", "34", "12", "123//1", "1 2 3 4", "=", ""),
    ("3412", "34", "12", "1234//1", "1 2 3 4", "34", "34//3 +"),
    ("3412", "34", "12", "1234//1", "1 2 3", "3412", "123//1"),
    ("312", "3", "", "123//1", "1 2 3", "312", "123//1"),
    ("21", "", "1", "12//1", "1 2", "2", "2//2 +"),
    ("21", "", "1", "1//1", "1 2", "=", ""),
    ("213", "", "3", "123//2", "1 2 3", "21", "12//2 +"),
]


@pytest.mark.parametrize(("replicas", "adding", "removing", "state", "alive", "after", "shows"), MOVES)
def test_moves(replicas: str, adding: str, removing: str, state: str, alive: str, after: str, shows: str) -> None:
    partition = partition_of(state, replicas, adding, removing)
    result = settled(partition, brokers_of(alive), ElectionRules(1))
    if after == "=":
        assert result is partition
        return
    assert (result.replicas, shown(result)) == (ids(after), shows.removesuffix(" +"))
    assert result.leader_epoch == (6 if shows.endswith("+") else 5)
    moving = after == replicas and bool(result.adding)
    assert (result.adding, result.removing) == ((ids(adding), ids(removing)) if moving else ((), ()))


@pytest.mark.parametrize(
    ("state", "alive", "expected"),
    [
        ("1//1", "1r", "="),
        ("1//1", "", "1//- +"),
        ("1//-", "1r", "1//1 +"),
        ("1//1", "1n", "1//- +"),
        ("1//1", "1s 2", "="),
    ],
)
def test_a_single_replica_leads_on_over_a_restart(state: str, alive: str, expected: str) -> None:
    partition = partition_of(state, "1")
    after = settled(partition, brokers_of(alive), ElectionRules(2))
    if expected == "=":
        assert after is partition
    else:
        assert (shown(after), after.leader_epoch) == (expected.removesuffix(" +"), 6)
