"""A leader tells where its log ends only while it is certain that nobody leads in its place (R7)."""

from __future__ import annotations

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId
from oncelog.base.tree import Set
from oncelog.core.controller.image import layout
from oncelog.node.replication.leadership_check import ANSWER_MS, FAR_MS, RETRY_MS
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.scenario.cluster.cluster import Cluster
from tests.scenario.cluster.replicated import PARTITION, create_replicated, replace_unheard, state, write
from tests.scenario.node.driver import Peer

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
IN_THE_FUTURE = 1 << 60
WAIT_MS = 5_000
OLD, TWO = 1, 2
"""The leader that is replaced without hearing of it, and the one that is elected."""


class Bench:
    """Brokers that all have three records of a partition, led by the first."""

    def __init__(self, brokers: int = 3, *, tree_is_near: bool = False, **configs: str) -> None:
        config = {"oncelog.transaction.wait.ms": str(WAIT_MS), "oncelog.legacy.protocol": "true"}
        self.cluster = Cluster(brokers, config)
        self.cluster[OLD].tree_is_near = tree_is_near
        create_replicated(self.cluster.connect(OLD), list(range(1, brokers + 1)), **configs)
        self.cluster.advance(1_000)
        assert write(self.cluster, OLD, b"a", b"b", b"c", acks=1) == (0, 0)
        self.cluster.advance(1_000)
        assert end(self.ask(OLD)) == 3

    def ask(self, broker_id: int, timestamp: int = LATEST, version: int = 7, replica_id: int = -1) -> Peer:
        """A connection that has asked for an offset."""
        peer = self.cluster.connect(broker_id)
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=9)
        topics = [ListOffsetsTopic(name=PARTITION.topic, partitions=[partition])]
        peer.send(ListOffsetsRequest(replica_id=replica_id, topics=topics), version)
        return peer

    def replace_leader(self, isr: tuple[int, ...] = (2, 3)) -> None:
        """Let the second broker be elected while the first hears nothing of the tree."""
        replace_unheard(self.cluster, self.cluster[OLD], self.cluster[TWO], isr)

    def cut_off(self, *members: int) -> None:
        """Let nothing get between the first leader and other brokers."""
        for member in members:
            self.cluster.cut(OLD, member)


def told(peer: Peer) -> ListOffsetsPartitionResponse:
    """The answer, which must be there."""
    (response,) = peer.responses
    (partition,) = response.topics[0].partitions
    return partition


def end(peer: Peer) -> int:
    """The offset that was told."""
    answer = told(peer)
    assert not answer.error_code, answer
    return answer.offset


def test_a_leader_that_was_replaced_without_hearing_of_it_tells_no_end() -> None:
    bench = Bench()
    bench.replace_leader()
    assert write(bench.cluster, TWO, b"d", acks=1) == (0, 3)
    for timestamp in (LATEST, MAX_TIMESTAMP, IN_THE_FUTURE):
        answer = told(bench.ask(OLD, timestamp))
        assert answer == ListOffsetsPartitionResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert told(bench.ask(OLD, version=0)) == ListOffsetsPartitionResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    bench.cluster.advance(1_000)
    assert end(bench.ask(TWO)) == 4


def test_what_does_not_depend_on_the_end_is_told_at_once() -> None:
    bench = Bench()
    bench.cluster[OLD].reads_fail = True
    bench.cut_off(2, 3)
    assert end(bench.ask(OLD, EARLIEST)) == 0
    assert end(bench.ask(OLD, 0)) == 0
    assert end(bench.ask(OLD, replica_id=-2)) == 3  # a tool that compares replicas


def test_a_leader_that_was_replaced_by_an_eligible_one_tells_no_end() -> None:
    """The in-sync set is the leader alone; another is elected from those that have all below the high watermark."""
    bench = Bench(2, min_insync_replicas="2")
    image, path = state(bench.cluster[OLD]), layout.state_path(PARTITION.topic, PARTITION.partition)
    shrunk = image._replace(isr=(BrokerId(OLD),), elr=(BrokerId(TWO),))
    bench.cluster.cut(TWO, OLD)
    bench.cluster.tree.session().commit([Set(path, layout.state_value(shrunk, 1), image.version)])
    bench.cluster.settle()
    assert (state(bench.cluster[OLD]).isr, state(bench.cluster[OLD]).elr) == ((OLD,), (TWO,))
    bench.replace_leader(isr=(TWO,))
    bench.cluster.heal(TWO, OLD)
    bench.cluster.advance(1_000)
    assert told(bench.ask(OLD)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_where_a_member_does_not_answer_the_tree_confirms() -> None:
    bench = Bench()
    bench.cut_off(3)
    peer = bench.ask(OLD)
    assert not peer.responses
    bench.cluster.advance(ANSWER_MS)
    assert end(peer) == 3
    assert end(bench.ask(OLD)) == 3, "it is not waited for a second time"
    bench.cluster[OLD].reads_fail = True
    bench.cluster.heal(OLD, 3)
    bench.cluster.advance(3_000)
    bench.ask(OLD)
    bench.cluster.advance(ANSWER_MS)
    assert end(bench.ask(OLD)) == 3, "it answers again"


def test_an_end_that_nobody_can_confirm_sends_clients_back() -> None:
    bench = Bench()
    bench.cut_off(2, 3)
    bench.cluster[OLD].reads_fail = True
    peers = [bench.ask(OLD, version=version) for version in (0, 4, 5)]
    bench.cluster.advance(WAIT_MS - 1)
    assert not any(peer.responses for peer in peers)
    bench.cluster.advance(1)
    assert [told(peer).error_code for peer in peers] == [
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    ]


def test_an_end_is_told_as_soon_as_the_tree_can_be_read() -> None:
    bench = Bench()
    bench.cut_off(2, 3)
    bench.cluster[OLD].reads_fail = True
    peer = bench.ask(OLD)
    bench.cluster.advance(2 * ANSWER_MS)
    bench.cluster[OLD].reads_fail = False
    bench.cluster.advance(ANSWER_MS + 2 * RETRY_MS)
    assert end(peer) == 3


def test_a_near_tree_confirms_without_a_message() -> None:
    bench = Bench(tree_is_near=True)
    bench.cluster[OLD].reads_fail = True
    bench.cut_off(2, 3)
    assert end(bench.ask(OLD)) == 3


def test_a_near_tree_that_has_changed_confirms_nothing() -> None:
    bench = Bench(tree_is_near=True)
    bench.cluster[OLD].reads_fail = True
    bench.replace_leader()
    assert write(bench.cluster, TWO, b"d", acks=1) == (0, 3)
    assert told(bench.ask(OLD)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "the members have told"
    bench.cut_off(2, 3)
    peer = bench.ask(OLD)
    bench.cluster.advance(WAIT_MS - 1)
    assert not peer.responses
    bench.cluster.advance(1)
    assert told(peer).error_code == ErrorCode.OFFSET_NOT_AVAILABLE


def test_an_image_that_reaches_a_near_tree_decides_without_members() -> None:
    bench = Bench(tree_is_near=True)
    bench.cluster[OLD].reads_fail = True
    bench.replace_leader()
    bench.cut_off(2, 3)
    peer = bench.ask(OLD)
    bench.cluster[OLD].hold_changes = False
    bench.cluster.advance(2 * ANSWER_MS)
    assert told(peer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_far_tree_is_tried_again_after_a_pause() -> None:
    bench = Bench()
    assert end(bench.ask(OLD)) == 3
    bench.cluster[OLD].tree_is_near = bench.cluster[OLD].reads_fail = True
    bench.cut_off(2, 3)
    bench.cluster.advance(FAR_MS)
    assert end(bench.ask(OLD)) == 3
