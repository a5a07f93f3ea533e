"""A group coordinator tells committed offsets only while it is certain that nobody leads in its place."""

from __future__ import annotations

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CONSUMER_OFFSETS, TopicPartition
from oncelog.node.replication.leadership_check import ANSWER_MS, FAR_MS, RETRY_MS
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.scenario.cluster.client import ClusterClient
from tests.scenario.cluster.cluster import Cluster, ClusterDriver
from tests.scenario.cluster.replicated import replace_unheard, state
from tests.scenario.node.driver import Peer
from tests.scenario.node.requests import create_topic

GROUP, TOPIC = "g", "t"
SHARD = TopicPartition(CONSUMER_OFFSETS, 0)
WAIT_MS = 5_000


class Bench:
    """Three brokers that keep committed offsets, of which one coordinates the group and has taken the offset 5."""

    def __init__(self) -> None:
        config = {"offsets.topic.replication.factor": "3", "oncelog.transaction.wait.ms": str(WAIT_MS)}
        self.cluster = Cluster(3, config)
        client = ClusterClient(self.cluster)
        create_topic(client.peer(1), TOPIC)
        client.ask(FindCoordinatorRequest(coordinator_keys=[GROUP], key_type=0), 4)
        self.cluster.advance(2_000)
        self.coordinator = self.cluster[client.coordinator(CONSUMER_OFFSETS, GROUP)]
        self.others = [item for item in self.cluster.running if item is not self.coordinator]
        assert set(state(self.coordinator, SHARD).isr) == {1, 2, 3}
        self.commit(self.coordinator, 5)

    def commit(self, driver: ClusterDriver, offset: int) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
        response = driver.connect().ask(OffsetCommitRequest(group_id=GROUP, topics=[topic]), 8)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE

    def ask(self, driver: ClusterDriver) -> Peer:
        """A connection that has asked for the offset."""
        peer = driver.connect()
        topic = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
        peer.send(OffsetFetchRequest(group_id=GROUP, topics=[topic]), 6)
        return peer

    def replace_coordinator(self) -> ClusterDriver:
        """Let another broker be elected while the coordinator hears nothing of the tree; it takes the offset 7."""
        elected = self.others[0]
        replace_unheard(self.cluster, self.coordinator, elected, (broker.broker_id for broker in self.others), SHARD)
        self.commit(elected, 7)
        return elected

    def cut_off(self, *members: ClusterDriver) -> None:
        """Let nothing get between the coordinator and other brokers."""
        for member in members:
            self.cluster.cut(self.coordinator.broker_id, member.broker_id)


def answer(peer: Peer) -> int | ErrorCode:
    """The committed offset, or the error; it must be there."""
    (response,) = peer.responses
    if response.error_code:
        return ErrorCode(response.error_code)
    return response.topics[0].partitions[0].committed_offset


def test_members_of_the_in_sync_set_confirm_at_once() -> None:
    bench = Bench()
    bench.coordinator.reads_fail = True
    began_ms = bench.cluster.now_ms
    assert answer(bench.ask(bench.coordinator)) == 5
    assert bench.cluster.now_ms == began_ms


def test_a_coordinator_that_was_replaced_without_hearing_of_it_tells_no_old_offset() -> None:
    bench = Bench()
    elected = bench.replace_coordinator()
    bench.coordinator.reads_fail = True
    assert answer(bench.ask(bench.coordinator)) is ErrorCode.NOT_COORDINATOR
    assert answer(bench.ask(elected)) == 7


def test_where_members_do_not_answer_the_tree_says_who_leads() -> None:
    bench = Bench()
    bench.replace_coordinator()
    bench.cut_off(*bench.others)
    peer = bench.ask(bench.coordinator)
    bench.cluster.advance(2 * ANSWER_MS)
    assert not peer.responses  # the tree has changed since, and the coordinator has yet to hear how
    bench.coordinator.hold_changes = False
    bench.cluster.advance(2 * RETRY_MS)
    assert answer(peer) is ErrorCode.NOT_COORDINATOR


def test_a_member_that_does_not_answer_does_not_keep_a_coordinator_from_answering() -> None:
    bench = Bench()
    bench.cut_off(bench.others[0])
    peer = bench.ask(bench.coordinator)
    assert not peer.responses
    bench.cluster.advance(ANSWER_MS)
    assert answer(peer) == 5


def test_one_that_nobody_can_confirm_sends_its_clients_back() -> None:
    bench = Bench()
    bench.cut_off(*bench.others)
    bench.coordinator.reads_fail = True
    peer = bench.ask(bench.coordinator)
    bench.cluster.advance(WAIT_MS - 1)
    assert not peer.responses
    bench.cluster.advance(1)
    assert answer(peer) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_it_answers_as_soon_as_somebody_can() -> None:
    bench = Bench()
    bench.cut_off(*bench.others)
    bench.coordinator.reads_fail = True
    peer = bench.ask(bench.coordinator)
    bench.cluster.advance(1_500)
    assert not peer.responses
    bench.coordinator.reads_fail = False
    bench.cluster.advance(2 * ANSWER_MS)
    assert answer(peer) == 5


def test_a_client_that_leaves_meanwhile_is_forgotten() -> None:
    bench = Bench()
    bench.cut_off(*bench.others)
    peer = bench.ask(bench.coordinator)
    bench.coordinator.disconnect(peer)
    bench.cluster.advance(WAIT_MS)
    assert bench.coordinator.fatal is None


def test_a_near_tree_confirms_the_coordinator_without_a_message() -> None:
    bench = Bench()
    bench.coordinator.tree_is_near = bench.coordinator.reads_fail = True
    bench.cluster.advance(FAR_MS)
    bench.cut_off(*bench.others)
    assert answer(bench.ask(bench.coordinator)) == 5


def test_a_coordinator_that_was_replaced_beside_a_near_tree_tells_no_old_offset() -> None:
    bench = Bench()
    bench.coordinator.tree_is_near = True
    bench.cluster.advance(FAR_MS)
    elected = bench.replace_coordinator()
    assert answer(bench.ask(bench.coordinator)) is ErrorCode.NOT_COORDINATOR
    assert answer(bench.ask(elected)) == 7
