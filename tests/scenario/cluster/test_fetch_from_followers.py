"""Consumers read from followers, up to what those know to be committed (KIP-392)."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.core.configs.keys import RACK_AWARE_SELECTOR
from oncelog.records.batch import iter_headers
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.scenario.cluster.cluster import Cluster, ClusterDriver
from tests.scenario.cluster.replicated import create_replicated, replica, state, write
from tests.scenario.node.driver import Peer

VERSION = 12
RACKS = {1: "a", 2: "b", 3: "b"}


class Racked(Cluster):
    """Broker 1 in rack a, brokers 2 and 3 in b."""

    def start(self, broker_id: int) -> ClusterDriver:
        """See the base class."""
        common = self.config
        self.config = {**common, "broker.rack": RACKS[broker_id]}
        driver = super().start(broker_id)
        self.config = common
        return driver


def made(**config: str) -> Cluster:
    cluster = Racked(3, {key.replace("_", "."): value for key, value in config.items()})
    create_replicated(cluster.connect(1), [1, 2, 3])
    write(cluster, 1, b"a", b"b")
    return cluster


def request(offset: int, *, rack: str = "", epoch: int = -1, wait_ms: int = 0, committed: bool = False) -> FetchRequest:
    expected = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 24,
        session_epoch=-1,
        rack_id=rack,
        isolation_level=int(committed),
        topics=[FetchTopic(topic="t", partitions=[expected])],
    )


def answer(response: Any) -> PartitionData:
    return response.responses[0].partitions[0]


def ask(cluster: Cluster, broker_id: int, offset: int, version: int = VERSION, **fields: Any) -> PartitionData:
    return answer(cluster.connect(broker_id).ask(request(offset, **fields), version))


def offsets(data: PartitionData) -> list[int]:
    return [header.base_offset for _, header in iter_headers(bytes(data.records or b""))]


class TestAFollower:
    def test_it_serves_what_is_committed(self) -> None:
        cluster = made()
        data = ask(cluster, 2, 0)
        assert (data.error_code, offsets(data), data.high_watermark) == (0, [0], 2)
        assert ask(cluster, 3, 0, committed=True).last_stable_offset == 2

    def test_not_to_clients_that_do_not_know_of_it(self) -> None:
        assert ask(made(), 2, 0, version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_nothing_beyond_its_high_watermark(self) -> None:
        """The leader knows more, and has not told it yet."""
        cluster = made()
        cluster.cut(1, 3)
        write_peer: Peer = cluster.connect(1)
        assert write(cluster, 1, b"c", acks=1) == (ErrorCode.NONE, 2)
        assert replica(cluster[2]).log_end_offset == 3
        data = ask(cluster, 2, 2)
        assert (data.error_code, offsets(data), data.high_watermark) == (0, [], 2)
        assert ask(cluster, 3, 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE, "as Apache Kafka: clients ask the leader"
        assert write_peer.responses == write_peer.responses.__class__()

    def test_a_fetch_that_waits_there_is_answered_when_its_high_watermark_moves(self) -> None:
        cluster = made()
        peer = cluster.connect(2)
        peer.send(request(2, wait_ms=5_000), VERSION)
        assert not peer.responses
        write(cluster, 1, b"c")
        cluster.advance(0)
        assert offsets(answer(peer.responses.popleft())) == [2]

    def test_leader_epochs_are_looked_at(self) -> None:
        cluster = made()
        cluster.restart(1)
        epoch = state(cluster[2]).leader_epoch
        assert epoch > 0
        follower = next(number for number in (1, 2, 3) if number != state(cluster[2]).leader)
        cluster.advance(1_000)
        assert ask(cluster, follower, 0, epoch=epoch).error_code == ErrorCode.NONE
        assert ask(cluster, follower, 0, epoch=epoch - 1).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert ask(cluster, follower, 0, epoch=epoch + 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    def test_where_the_log_ends_is_the_leaders_to_say(self) -> None:
        topic = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        response = made().connect(2).ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), 7)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_a_broker_without_a_replica_serves_nothing(self) -> None:
        cluster = made()
        create_replicated(cluster.connect(1), [1, 2], "u")
        response = request(0)
        response.topics[0].topic = "u"
        assert answer(cluster.connect(3).ask(response, VERSION)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


class TestTheLeader:
    def test_it_sends_consumers_to_a_follower_in_their_rack(self) -> None:
        cluster = made(replica_selector_class=RACK_AWARE_SELECTOR)
        data = ask(cluster, 1, 0, rack="b", wait_ms=5_000)
        assert (data.error_code, offsets(data), data.high_watermark) == (0, [], 2)
        assert data.preferred_read_replica == 3
        assert offsets(ask(cluster, data.preferred_read_replica, 0, rack="b")) == [0]

    @pytest.mark.parametrize("rack", ["", "a", "elsewhere"])
    def test_others_read_here(self, rack: str) -> None:
        data = ask(made(replica_selector_class=RACK_AWARE_SELECTOR), 1, 0, rack=rack)
        assert (offsets(data), data.preferred_read_replica) == ([0], -1)

    def test_nobody_is_sent_away_where_it_is_not_configured(self) -> None:
        assert ask(made(), 1, 0, rack="b").preferred_read_replica == -1

    def test_not_to_a_follower_that_lacks_what_is_asked_for_nor_to_one_that_is_dead(self) -> None:
        cluster = made(replica_selector_class=RACK_AWARE_SELECTOR)
        cluster.cut(1, 3)
        write(cluster, 1, b"c", acks=1)
        assert ask(cluster, 1, 3, rack="b").preferred_read_replica == 2
        cluster.kill(2)
        assert ask(cluster, 1, 0, rack="b").preferred_read_replica == 3
        cluster.kill(3)
        assert ask(cluster, 1, 0, rack="b").preferred_read_replica == -1
