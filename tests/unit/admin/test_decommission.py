"""Decommissions in steps: what is still to be moved, by lists and metadata that are not of one moment."""

from __future__ import annotations

import pytest

from oncelog.admin.cluster import BrokerRow
from oncelog.admin.decommission import _MAX_ROUNDS, Departure, MovesUnderWay, departure
from oncelog.admin.reassignment_plan import PlanRefused
from oncelog.admin.reassignments import ReassignmentRow
from oncelog.base.ids import NO_TOPIC_ID, BrokerId, LeaderEpoch, TopicName, TopicPartition
from oncelog.client.machine.metadata import PartitionInfo, TopicInfo

LEAVING = 3
AT = TopicPartition(TopicName("t"), 0)
MOVING = ReassignmentRow("t", 0, (1, 2, 3), (2,), (3,))


def look(under_way: MovesUnderWay, replicas: tuple[int, ...], *listed: ReassignmentRow, brokers: int = 3) -> Departure:
    """The plan where metadata show these replicas of the one partition, and the controller lists these moves."""
    partition = PartitionInfo(0, BrokerId(replicas[0]), LeaderEpoch(0), replicas, replicas)
    topics = {AT.topic: TopicInfo(AT.topic, NO_TOPIC_ID, {0: partition})}
    rows = [BrokerRow(number, "host", 9092, None, number == 1) for number in range(1, brokers + 1)]
    return departure(LEAVING, topics, list(listed), rows, under_way)


@pytest.mark.parametrize("stale", [(1, 3), (1, 2, 3)])
@pytest.mark.parametrize("brokers", [3, 4])
def test_a_move_that_metadata_do_not_show_yet_is_not_planned_anew(stale: tuple[int, ...], brokers: int) -> None:
    """With a broker to spare the partition got a replica more, without one the command said that it was impossible."""
    under_way = MovesUnderWay()
    begun = look(under_way, (1, 3), brokers=brokers)
    assert (begun.left, begun.moving, list(begun.plan)) == (1, 0, [AT])
    under_way.note(begun.plan)
    for found in (
        look(under_way, stale, MOVING, brokers=brokers),
        look(under_way, stale, brokers=brokers),
        look(under_way, (1, 3), brokers=brokers),
    ):
        assert (found.left, found.moving, found.plan) == (1, 1, {})
    ended = look(under_way, (1, 2), brokers=brokers)
    assert (ended.left, ended.moving, ended.plan) == (0, 0, {})
    assert look(under_way, stale, brokers=brokers).plan == {}, "another broker, which is behind"


def test_a_move_that_somebody_else_began_counts_as_well() -> None:
    under_way = MovesUnderWay()
    assert look(under_way, (1, 2, 3), MOVING).moving == 1
    assert look(under_way, (1, 2, 3)).plan == {}


def test_a_move_that_was_taken_back_is_planned_anew() -> None:
    under_way = MovesUnderWay()
    under_way.note(look(under_way, (1, 3)).plan)
    for _ in range(_MAX_ROUNDS):
        assert look(under_way, (1, 3)).plan == {}
    again = look(under_way, (1, 3)).plan
    assert again == {AT: (1, 2)}
    under_way.note(again)
    assert look(under_way, (1, 3)).plan == {}


def test_a_move_onto_the_broker_does_not_count_as_one_away() -> None:
    under_way = MovesUnderWay()
    arriving = ReassignmentRow("t", 0, (1, 3), (3,), ())
    assert look(under_way, (1, 3), arriving).plan == {AT: (1, 2)}
    assert look(under_way, (1, 3)).plan == {AT: (1, 2)}


def test_too_few_brokers_are_refused() -> None:
    with pytest.raises(PlanRefused, match="t-0 has 2 replicas, and without broker 3"):
        look(MovesUnderWay(), (1, 3), brokers=1)
