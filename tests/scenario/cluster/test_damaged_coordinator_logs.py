"""A flipped bit in a coordinator's log: nothing of it counts, and another replica coordinates."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CONSUMER_OFFSETS, TopicPartition
from oncelog.sim.virtual.files import MemoryFiles
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.scenario.cluster.client import ClusterClient
from tests.scenario.cluster.cluster import Cluster, ClusterDriver
from tests.scenario.cluster.replicated import replica
from tests.scenario.node.requests import create_topic
from tests.unit.storage.replication import log_bytes

OFFSETS = TopicPartition(CONSUMER_OFFSETS, 0)
ONE_SHARD = {"offsets.topic.num.partitions": "1"}
LENGTH, IN_THE_RECORDS = 11, 90
"""Bytes from the beginning of a batch: the end of its length, and a place behind its header."""


def flip(driver: ClusterDriver, at_byte: int) -> None:
    """Flip a bit of the first batch of the coordinator's log on the disk of a broker."""
    files = driver.files
    assert isinstance(files, MemoryFiles)
    files.flip_bit(f"{OFFSETS}/00000000000000000000.log", 8 * at_byte)


def commit(client: ClusterClient, offset: int) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    answer = client.ask(OffsetCommitRequest(group_id="g", topics=[topic]), 7)
    assert answer.topics[0].partitions[0].error_code == 0


def committed(client: ClusterClient) -> tuple[int, int]:
    """The error code and the offset that the group's coordinator answers."""
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
    answer = client.ask(request, 7)
    if answer.error_code:
        return answer.error_code, -1
    return answer.error_code, answer.topics[0].partitions[0].committed_offset


def with_offsets(brokers: int, replicas: int) -> tuple[Cluster, ClusterClient]:
    """A cluster whose only coordinator of groups has two commits of a group in its log."""
    cluster = Cluster(brokers, ONE_SHARD | {"offsets.topic.replication.factor": str(replicas)})
    client = ClusterClient(cluster)
    create_topic(client.peer(1), "t", 1)
    client.ask(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), 4)
    for offset in (7, 8):
        commit(client, offset)
    return cluster, client


@pytest.mark.parametrize("at_byte", [LENGTH, IN_THE_RECORDS])
def test_another_replica_coordinates_and_the_damaged_one_copies(at_byte: int) -> None:
    cluster, client = with_offsets(3, 3)
    first = client.coordinator(CONSUMER_OFFSETS, "g")
    image = cluster[first].node.cluster.image.partition(OFFSETS)
    assert image is not None
    second, third = [broker for broker in image.replicas if broker != first]
    flip(cluster[second], at_byte)
    cluster.kill(first)
    assert committed(client) == (0, 8)
    assert client.coordinator(CONSUMER_OFFSETS, "g") == third
    cluster.advance(5_000)
    assert log_bytes(replica(cluster[second], OFFSETS)) == log_bytes(replica(cluster[third], OFFSETS))
    (told,) = [report for report in cluster[second].reports if "cannot be read" in report]
    assert "the coordinator's log __consumer_offsets-0 at offset 0 cannot be read" in told


def test_where_no_other_has_the_log_its_groups_wait_and_the_broker_serves() -> None:
    cluster, client = with_offsets(1, 1)
    cluster[1].node.logs.close()  # cleanly: after a kill the log is cut before what is damaged
    flip(cluster[1], IN_THE_RECORDS)
    cluster.restart(1)
    assert committed(client) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
    assert [report for report in cluster[1].reports if "no other replica is in sync" in report]
    create_topic(client.peer(1), "other", 1)
