"""DeleteRecords on partitions with followers: answered when no live replica has the records."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.scenario.cluster.cluster import Cluster
from tests.scenario.cluster.replicated import create_replicated, replica, write
from tests.scenario.cluster.test_reassignments import reassign
from tests.scenario.node.driver import Peer

TIMEOUT_MS = 3_000


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(3)
    create_replicated(cluster.connect(1), [1, 2, 3])
    write(cluster, 1, b"a", b"b", b"c")
    write(cluster, 1, b"d")
    return cluster


def delete(cluster: Cluster, offset: int, broker_id: int = 1) -> Peer:
    """Ask a broker to delete what is before ``offset``."""
    topic = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
    peer = cluster.connect(broker_id)
    peer.send(DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), 2)
    return peer


def outcome(peer: Peer) -> tuple[ErrorCode, int]:
    """(error, low watermark)."""
    (response,) = peer.responses
    answer = response.topics[0].partitions[0]
    return ErrorCode(answer.error_code), answer.low_watermark


def starts(cluster: Cluster) -> list[int]:
    return [replica(cluster[broker_id]).log_start_offset for broker_id in (1, 2, 3)]


def test_it_is_answered_when_every_replica_has_deleted() -> None:
    cluster = Cluster(3)
    create_replicated(cluster.connect(1), [1, 2, 3])
    write(cluster, 1, b"a", b"b", b"c")
    began_ms = cluster.now_ms
    assert outcome(delete(cluster, 2)) == (ErrorCode.NONE, 2)
    assert starts(cluster) == [2, 2, 2]
    assert cluster.now_ms == began_ms, "followers are told at once"


def test_a_follower_that_does_not_follow_in_time(cluster: Cluster) -> None:
    cluster.cut(1, 3)
    peer = delete(cluster, 3)
    cluster.advance(TIMEOUT_MS - 1)
    assert not peer.responses
    assert starts(cluster) == [3, 3, 0]
    cluster.advance(1)
    assert outcome(peer) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    cluster.heal(1, 3)
    cluster.advance(1_000)
    assert starts(cluster) == [3, 3, 3]


def test_what_was_deleted_before_is_waited_for_too(cluster: Cluster) -> None:
    cluster.cut(1, 3)
    delete(cluster, 3)
    peer = delete(cluster, 3)
    assert not peer.responses
    cluster.heal(1, 3)
    cluster.advance(1_000)
    assert outcome(peer) == (ErrorCode.NONE, 3)


def test_a_dead_follower_is_not_waited_for(cluster: Cluster) -> None:
    cluster.kill(3)
    assert outcome(delete(cluster, -1)) == (ErrorCode.NONE, 4)
    cluster.start(3)
    cluster.advance(1_000)
    assert starts(cluster) == [4, 4, 4]


def test_a_follower_that_dies_is_waited_for_no_more(cluster: Cluster) -> None:
    cluster.cut(1, 3)
    peer = delete(cluster, 3)
    assert not peer.responses
    cluster.kill(3)
    assert outcome(peer) == (ErrorCode.NONE, 3)


def test_a_follower_that_died_is_waited_for_while_it_is_in_sync() -> None:
    """It may be back, and be elected, before a controller has taken it out of the set."""
    cluster = Cluster(3)
    create_replicated(cluster.connect(1), [2, 1, 3])
    write(cluster, 2, b"a", b"b", b"c")
    cluster.cut(2, 3)
    delete(cluster, 3, broker_id=2)
    cluster.kill(1, session_ends=False)  # the controller; its own log begins there already
    cluster.kill(3)
    peer = delete(cluster, 3, broker_id=2)
    assert not peer.responses
    cluster.heal(2, 3)
    cluster.start(3)
    cluster.advance(1_000)
    assert outcome(peer) == (ErrorCode.NONE, 3)


def test_a_leader_that_is_one_no_more_does_not_answer_for_others(cluster: Cluster) -> None:
    cluster.cut(1, 3)
    peer = delete(cluster, 3)
    assert reassign(cluster, [2]) == ErrorCode.NONE
    assert outcome(peer)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_was_answered_is_not_undone_by_a_power_cut_of_all(cluster: Cluster) -> None:
    assert outcome(delete(cluster, 2)) == (ErrorCode.NONE, 2)
    for broker_id in (1, 2, 3):
        cluster.kill(broker_id)
    for broker_id in (1, 2, 3):
        cluster[broker_id].files.crash(broker_id)
    for broker_id in (3, 2, 1):
        cluster.start(broker_id)
    assert starts(cluster) == [2, 2, 2]


def test_a_follower_never_goes_past_its_leader(cluster: Cluster) -> None:
    assert outcome(delete(cluster, 3, broker_id=2)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert starts(cluster) == [0, 0, 0]


def test_a_copy_that_begins_in_the_middle_of_a_batch_begins_there_after_a_power_cut_of_all(cluster: Cluster) -> None:
    cluster.kill(3)
    write(cluster, 1, b"e", b"f", b"g")
    assert outcome(delete(cluster, 6)) == (ErrorCode.NONE, 6)
    cluster.start(3)  # its log ends where its leader's has been deleted
    cluster.advance(1_000)
    assert starts(cluster) == [6, 6, 6]
    for broker_id in (1, 2, 3):
        cluster.kill(broker_id)
    for broker_id in (1, 2, 3):
        cluster[broker_id].files.crash(broker_id)
    cluster.start(3)
    assert replica(cluster[3]).log_start_offset == 6
