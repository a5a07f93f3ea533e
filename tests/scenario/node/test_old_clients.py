"""Old clients and a whole node: with the switch and without, what is waited for, bounded and refused."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.tree import Create, TreeUnavailable
from oncelog.legacy.message_set.entry import shallow
from oncelog.legacy.message_set.reading import deep
from oncelog.records.builder import build_batch
from oncelog.records.compression import Codec
from oncelog.records.record import Record
from oncelog.storage.log.append import append_batch
from oncelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.list_offsets import ListOffsetsRequest
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from oncelog.wire.messages.produce import ProduceRequest
from tests.conformance.old_clients.sets import damaged, messages
from tests.message_sets import write
from tests.scenario.node.driver import Driver
from tests.scenario.node.requests import create_topic, fetch, fetched, log_of, produce, produced
from tests.scenario.node.test_quotas import set_quota

ON = {"oncelog.legacy.protocol": "true"}
OLD = [
    (ProduceRequest(acks=1), 0),
    (ProduceRequest(acks=1), 2),
    (FetchRequest(), 0),
    (FetchRequest(), 3),
    (ListOffsetsRequest(), 0),
    (OffsetCommitRequest(), 0),
    (OffsetCommitRequest(), 1),
    (OffsetFetchRequest(), 0),
]
MIB = 1 << 20


@pytest.fixture
def driver() -> Driver:
    return Driver(ON)


@pytest.mark.parametrize(("request_", "version"), OLD, ids=lambda item: getattr(type(item), "__name__", item))
def test_without_the_switch_old_versions_close_the_connection(request_, version):
    peer = Driver().connect()
    peer.send(request_, version)
    assert peer.closed
    assert not peer.responses


@pytest.mark.parametrize(("request_", "version"), OLD, ids=lambda item: getattr(type(item), "__name__", item))
def test_with_the_switch_they_are_answered(driver, request_, version):
    assert driver.connect().ask(request_, version) is not None


def test_versions_that_never_were_close_the_connection_still(driver):
    peer = driver.connect()
    peer.send_frame((1).to_bytes(2, "big") + (99).to_bytes(2, "big") + bytes(10))
    assert peer.closed


def test_messages_are_acknowledged_when_they_are_on_disk(driver):
    peer = driver.connect()
    create_topic(peer, "t")
    driver.hold_syncs = True
    peer.send(produce("t", write(messages(1), 1)), 2)
    assert not peer.responses
    driver.release()
    assert produced(peer.responses.popleft()) == (0, 0)


def test_without_acknowledgement_there_is_no_answer_and_an_error_closes(driver):
    peer = driver.connect()
    create_topic(peer, "t")
    peer.send(produce("t", write(messages(0), 0), acks=0), 0)
    assert not peer.responses
    assert not peer.closed
    assert log_of(driver, "t").log_end_offset == 3
    peer.send(produce("t", damaged(write(messages(0), 0)), acks=0), 0)
    assert peer.closed


def test_what_is_large_is_converted_by_a_worker_while_others_go_on(driver):
    peer, other = driver.connect(), driver.connect()
    create_topic(peer, "t")
    driver.hold_jobs = True
    peer.send(produce("t", write(messages(1, [(b"k", b"v" * 100)] * 1000), 1, Codec.GZIP)), 2)
    assert not peer.responses
    assert produced(other.ask(produce("t", write(messages(1), 1)), 2)) == (0, 0)
    driver.release()
    assert produced(peer.responses.popleft()) == (0, 3)
    driver.hold_jobs = True
    peer.send(fetch("t", 0), 2)
    assert not peer.responses
    driver.release()
    assert len(list(deep(fetched(peer.responses.popleft())[2]))) == 1003


def test_a_batch_that_becomes_more_than_asked_for_is_read_in_parts(driver):
    peer = driver.connect()
    create_topic(peer, "t")
    records = [Record(offset, driver.now_ms, None, b"%d" % offset) for offset in range(2000)]
    peer.ask(produce("t", bytes(build_batch(records, codec=Codec.GZIP))), 9)
    result, sizes = [], []
    while len(result) < len(records):
        request = fetch("t", len(result))
        request.topics[0].partitions[0].partition_max_bytes = 8000
        _, _, data = fetched(peer.ask(request, 1))
        sizes.append(len(data))
        some = [message.value for message in deep(data)]
        assert some
        result += some
    assert result == [record.value for record in records]
    assert max(sizes) <= 8000


def test_an_answer_is_bounded_and_every_partition_has_its_share(driver):
    peer = driver.connect()
    create_topic(peer, "t", 8)
    for partition in range(8):
        records = [Record(offset, driver.now_ms, None, b"v" * 1000) for offset in range(900)]
        peer.ask(produce("t", bytes(build_batch(records)), partition), 9)
    partitions = [FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=MIB) for p in range(8)]
    request = FetchRequest(replica_id=-1, min_bytes=1, topics=[FetchTopic(topic="t", partitions=partitions)])
    response = peer.ask(request, 1)
    sizes = [len(partition.records) for partition in response.responses[0].partitions]
    assert sum(sizes) <= 4 * MIB
    assert min(sizes) > MIB // 4


def test_a_marker_at_the_end_is_waited_behind(driver):
    peer, other = driver.connect(), driver.connect()
    create_topic(peer, "t")
    peer.ask(produce("t", write(messages(1), 1)), 2)
    leader = driver.node.partitions.leader_log(log_of(driver, "t").partition)
    marker = build_batch(
        [Record(0, driver.now_ms, b"\0\0\0\1", b"\0\0\0\0\0\0")], producer_id=7, producer_epoch=0, control=True
    )
    append_batch(leader.log, memoryview(marker), now_ms=driver.now_ms, leader_epoch=leader.leader_epoch, internal=True)
    driver.node.partitions.appended(leader, 1, len(marker))
    driver.advance(10)
    peer.send(fetch("t", 3, max_wait_ms=500), 3)
    assert not peer.responses, "nothing but a marker is there: an answer would be asked for again at once"
    other.ask(produce("t", write(messages(1), 1)), 2)
    _, _, data = fetched(peer.responses.popleft())
    assert [message.offset for message in deep(data)] == [4, 5, 6]
    peer.send(fetch("t", 3, max_wait_ms=500), 3)
    assert len(list(deep(fetched(peer.responses.popleft())[2]))) == 3
    peer.send(fetch("t", 7, max_wait_ms=500), 3)
    driver.advance(500)
    assert fetched(peer.responses.popleft()) == (0, 7, b"")


def test_replicas_get_nothing_converted(driver):
    peer = driver.connect()
    create_topic(peer, "t")
    peer.ask(produce("t", write(messages(1), 1)), 2)
    request = fetch("t", 0)
    request.replica_id = 1
    assert fetched(peer.ask(request, 3)) == (ErrorCode.UNSUPPORTED_VERSION, -1, b"")


def test_wrappers_keep_the_codec_of_the_batch(driver):
    peer = driver.connect()
    create_topic(peer, "t")
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
        peer.ask(produce("t", write(messages(1), 1, codec)), 2)
    for version in (0, 3):
        _, _, data = fetched(peer.ask(fetch("t", 0), version))
        assert [entry.codec for entry in shallow(data)] == [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def commit(group: str, offset: int, topic: str = "t") -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])])


def committed(peer, group: str, topic: str = "t") -> tuple[int, int]:
    topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    response = peer.ask(OffsetFetchRequest(group_id=group, topics=topics), 0)
    partition = response.topics[0].partitions[0]
    return partition.error_code, partition.committed_offset


def error_of(response) -> int:
    return response.topics[0].partitions[0].error_code


def test_offsets_lie_where_consumers_of_zookeeper_have_theirs(driver):
    peer = driver.connect()
    create_topic(peer, "t")
    assert committed(peer, "g") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    for offset in (5, 5, 7):
        assert error_of(peer.ask(commit("g", offset), 0)) == 0
        assert driver.session.read("/consumers/g/offsets/t/0").value == b"%d" % offset
        assert committed(peer, "g") == (0, offset)
    parents = ["/consumers/other", "/consumers/other/offsets", "/consumers/other/offsets/t"]
    nodes = [Create(path, b"") for path in parents] + [Create(f"{parents[-1]}/0", b"50")]
    driver.session.commit(nodes)
    driver.dispatch_changes()
    assert committed(peer, "other") == (0, 50)
    driver.crash_and_restart(1)
    assert committed(driver.connect(), "g") == (0, 7)


def test_a_commit_that_meets_another_ones_is_made_anew(driver):
    peer = driver.connect()
    create_topic(peer, "t")
    driver.hold_metadata = True
    peer.send(commit("g", 5), 0)
    driver.session.commit([Create("/consumers", b""), Create("/consumers/g", b"")])
    driver.dispatch_changes()
    driver.release()
    driver.release()
    assert error_of(peer.responses.popleft()) == 0
    assert committed(peer, "g") == (0, 5)


def test_without_the_tree_offsets_are_refused(driver, monkeypatch):
    peer = driver.connect()
    create_topic(peer, "t")

    def unavailable(_path):
        raise TreeUnavailable

    monkeypatch.setattr(driver.session, "read", unavailable)
    assert error_of(peer.ask(commit("g", 5), 0)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert committed(peer, "g") == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


@pytest.mark.parametrize("group", ["", ".", "..", "a/b", "a\0b", "x" * 300])
def test_groups_that_cannot_be_nodes_are_refused(driver, group):
    peer = driver.connect()
    create_topic(peer, "t")
    assert error_of(peer.ask(commit(group, 1), 0)) == ErrorCode.INVALID_GROUP_ID
    assert committed(peer, group) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_access_control_holds_for_old_clients_too():
    config = {
        **ON,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    driver = Driver(config)
    admin, app = driver.connect(principal="User:admin"), driver.connect(principal="User:app")
    create_topic(admin, "t")
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert produced(app.ask(produce("t", write(messages(1), 1)), 2)) == (denied, -1)
    assert fetched(app.ask(fetch("t", 0), 2))[0] == denied
    assert error_of(app.ask(commit("g", 1), 0)) == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert committed(app, "g")[0] == ErrorCode.GROUP_AUTHORIZATION_FAILED
    entries = [
        AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=3,
            principal="User:app",
            host="*",
            operation=2,
            permission_type=3,
        )
        for kind, name in ((2, "t"), (3, "g"))
    ]
    admin.ask(CreateAclsRequest(creations=entries), 2)
    assert produced(app.ask(produce("t", write(messages(1), 1)), 2)) == (0, 0)
    assert fetched(app.ask(fetch("t", 0), 2))[0] == 0
    assert error_of(app.ask(commit("g", 1), 0)) == 0
    assert committed(app, "g") == (0, 1)


@pytest.mark.parametrize("version", [1, 3])
def test_a_message_larger_than_its_share_comes_when_it_is_its_partitions_turn(driver, version):
    peer = driver.connect()
    create_topic(peer, "t", 10)
    for partition in range(10):
        peer.ask(produce("t", write(messages(1, [(None, b"v" * 500_000)]), 1), partition), 2)
    partitions = [FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=MIB) for p in range(10)]
    request = FetchRequest(replica_id=-1, min_bytes=1, topics=[FetchTopic(topic="t", partitions=partitions)])
    seen = set()
    for _ in range(10):
        response = peer.ask(request, version)
        given = [partition.partition_index for partition in response.responses[0].partitions if len(partition.records)]
        assert given
        assert sum(len(partition.records) for partition in response.responses[0].partitions) <= 4 * MIB
        seen.update(given)
        driver.advance(1)
    assert seen == set(range(10))


def test_quotas_hold_for_old_clients_too(driver):
    peer = driver.connect()
    create_topic(peer, "t")
    set_quota(peer, producer_byte_rate=1000.0, consumer_byte_rate=1000.0)
    large = produce("t", write(messages(1, [(None, b"v" * 6000)], time=driver.now_ms), 1))
    assert peer.ask(large, 1).throttle_time_ms == 0
    response = peer.ask(large, 1)
    assert produced(response) == (0, 1)
    assert response.throttle_time_ms > 1000
    assert peer.paused
    driver.advance(60_000)
    peer.ask(large, 1)
    peer.ask(large, 0)
    assert peer.paused, "version 0 cannot be told for how long"
    driver.advance(60_000)
    request = fetch("t", 0)
    request.topics[0].partitions[0].partition_max_bytes = 7000
    assert [message.offset for message in deep(fetched(peer.ask(request, 1))[2])] == [0]
    response = peer.ask(request, 1)
    assert response.responses == []
    assert response.throttle_time_ms > 1000
    assert peer.paused
