"""A request of tens of thousands of items leaves others their turn, and is answered as if it had not been cut up."""

from __future__ import annotations

import gc
from itertools import pairwise

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.handlers.groups import administration
from oncelog.handlers.topics import create_topics
from oncelog.handlers.transactions import coordinator_queries as questions
from oncelog.node.coordinators.hosted_shards import PendingRequest
from oncelog.node.requests import large_responses
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest
from oncelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.wire.messages.describe_groups import DescribeGroupsRequest
from oncelog.wire.messages.describe_producers import DescribeProducersRequest
from oncelog.wire.messages.describe_producers import TopicRequest as ProducersOf
from oncelog.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.wire.messages.list_transactions import ListTransactionsRequest
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from oncelog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.hostile.turns import Turns
from tests.scenario.node.requests import FETCH_VERSION, batch, create_topic, fetch, produce
from tests.scenario.share.state_requests import ask, find, initialize, key_of

MANY = 12_000


@pytest.fixture
def driver() -> Turns:
    return Turns()


def topics(count: int) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=f"t{number}") for number in range(count)]


@pytest.mark.slow
def test_others_are_answered_between_the_parts_of_a_large_request(driver):
    large, small = driver.connect(), driver.connect()
    create_topic(large, "t7")
    answered = []

    def ask() -> None:
        driver.between = lambda: None
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t7")], allow_auto_topic_creation=False)
        answered.append(small.ask(request, 9).topics[0].error_code)
        assert not large.responses

    driver.between = ask
    driver.turns = 0
    response = large.ask(MetadataRequest(topics=topics(MANY), allow_auto_topic_creation=False), 9)
    assert answered == [0]
    assert driver.turns >= MANY // 1000
    assert [topic.name for topic in response.topics] == [f"t{number}" for number in range(MANY)]
    assert [topic.name for topic in response.topics if topic.error_code == 0] == ["t7"]


@pytest.mark.slow
def test_what_is_named_twice_is_found_wherever_it_stands(driver):
    peer = driver.connect()
    names = [ListOffsetsTopic(name=f"t{number}", partitions=[ListOffsetsPartition()]) for number in range(MANY)]
    again = ListOffsetsTopic(name="t1", partitions=[ListOffsetsPartition()])
    create_topic(peer, "t1")
    response = peer.ask(ListOffsetsRequest(replica_id=-1, topics=[*names, again]), 5)
    assert len(response.topics) == MANY
    result = {topic.name: topic.partitions for topic in response.topics}
    assert [partition.error_code for partition in result["t1"]] == [ErrorCode.INVALID_REQUEST]


@pytest.mark.slow
def test_too_many_topics_are_not_created_a_part_at_a_time(driver):
    peer = driver.connect()
    driver.turns = 0
    request = MetadataRequest(
        topics=topics(MANY), allow_auto_topic_creation=True, include_topic_authorized_operations=True
    )
    response = peer.ask(request, 9)
    assert driver.turns >= MANY // 1000, "they are refused at once, and told a thousand at a time"
    assert [topic.name for topic in response.topics] == [topic.name for topic in request.topics]
    assert {topic.error_code for topic in response.topics} == {ErrorCode.POLICY_VIOLATION}
    expected = [CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1) for number in range(MANY)]
    created = peer.ask(CreateTopicsRequest(topics=expected, timeout_ms=1000), 5)
    assert {topic.error_code for topic in created.topics} == {ErrorCode.POLICY_VIOLATION}
    assert not driver.node.cluster.image.topics


def test_thousands_of_topics_are_created_some_at_a_time_as_if_at_once(driver, monkeypatch):
    """Names that could be confused are only compared with those of other requests, as if all were decided at once."""
    monkeypatch.setattr(create_topics, "TOPICS_PER_COMMIT", 2)
    peer = driver.connect()
    expected = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=1)
        for name, count in {"a": 1, "a.b": 2, "c": 0, "a_b": 1, "d": 3}.items()
    ]
    driver.turns = 0
    tried = peer.ask(CreateTopicsRequest(topics=expected, timeout_ms=1000, validate_only=True), 5)
    assert not driver.node.cluster.image.topics
    created = peer.ask(CreateTopicsRequest(topics=expected, timeout_ms=1000), 5)
    assert driver.turns >= 6
    for response in (tried, created):
        codes = [topic.error_code for topic in response.topics]
        assert codes == [0, 0, ErrorCode.INVALID_PARTITIONS, 0, 0]
    assert {name: len(topic.partitions) for name, topic in driver.node.cluster.image.topics.items()} == {
        "a": 1,
        "a.b": 2,
        "a_b": 1,
        "d": 3,
    }
    again = peer.ask(CreateTopicsRequest(topics=expected[-2:], timeout_ms=1000), 5)
    assert [topic.error_code for topic in again.topics] == [ErrorCode.TOPIC_ALREADY_EXISTS] * 2


@pytest.mark.slow
def test_one_resource_of_an_unknown_type_refuses_them_all(driver):
    peer = driver.connect()
    known = [DescribeConfigsResource(resource_type=2, resource_name=f"t{number}") for number in range(MANY)]
    unknown = DescribeConfigsResource(resource_type=99, resource_name="what")
    assert {result.error_code for result in peer.ask(DescribeConfigsRequest(resources=known), 4).results} == {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    refused = peer.ask(DescribeConfigsRequest(resources=[*known, unknown]), 4)
    assert {result.error_code for result in refused.results} == {ErrorCode.INVALID_REQUEST}


def test_fetch_sessions_are_kept_of_clients_and_names_that_may_be_and_until_their_connection_goes(driver):
    peer = driver.connect()
    create_topic(peer, "t")
    cache = driver.node.partitions.fetch_sessions.cache

    def opened(name: str, replica_id: int = -1) -> tuple[bool, int]:
        topic = FetchTopic(topic=name, partitions=[FetchPartition()])
        request = FetchRequest(replica_id=replica_id, max_wait_ms=0, session_epoch=0, topics=[topic])
        response = peer.ask(request, 12)
        return bool(response.session_id), response.responses[0].partitions[0].error_code

    assert opened("t") == (True, ErrorCode.NONE)
    assert opened("not yet") == (False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert opened("not-yet") == (True, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert opened("t" * 250) == (False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for no_follower in (driver.node.cluster.broker_id, 99):
        assert not opened("t", no_follower)[0]
    assert len(cache) == 2
    driver.disconnect(peer)
    assert (len(cache), cache.size_bytes) == (0, 0)


def test_a_request_is_freed_when_it_is_answered(driver):
    """A waiting request and what it waited in referred to each other: it was kept until garbage was collected."""
    peer = driver.connect()
    peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    groups = [f"{number}".ljust(30_000) for number in range(4)]
    gc.disable()
    try:
        peer.ask(DescribeGroupsRequest(groups=groups), 5)
        # Not the result of `gc.collect`: it counts what threads of other tests leave meanwhile.
        kept = [item for item in gc.get_objects() if type(item) is PendingRequest and item.name in groups]
        assert not kept
    finally:
        gc.enable()


def test_brokers_named_by_thousands_of_digits_are_told_apart_in_linear_time(driver):
    """An expression that backtracked took 3.4 s for each of these names."""
    peer = driver.connect()
    names = ["0" * 32_000 + "x", "0" * 32_000 + "1", "+0001", "1"]
    resources = [DescribeConfigsResource(resource_type=4, resource_name=name, configuration_keys=[]) for name in names]
    results = peer.ask(DescribeConfigsRequest(resources=resources), 4).results
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST, 0], (
        "what is the same is answered once"
    )


def test_a_handler_that_asks_coordinators_one_by_one_takes_turns(driver):
    peer = driver.connect()
    peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    driver.turns = 0
    response = peer.ask(DescribeGroupsRequest(groups=[f"g{number}" for number in range(5000)]), 5)
    assert len(response.groups) == 5000
    assert driver.turns >= 5000 // 500


def test_a_large_request_is_carried_out_for_a_client_that_leaves_in_turns_with_others(driver):
    peer, other = driver.connect(), driver.connect()

    def leave() -> None:
        driver.between = lambda: None
        driver.disconnect(peer)

    driver.between = leave
    driver.turns = 0
    peer.send(DeleteTopicsRequest(topic_names=[f"t{number}" for number in range(MANY)], timeout_ms=1000), 5)
    assert driver.turns >= MANY // 1000
    assert len(driver.node.requests.closed) == 0
    assert other.ask(MetadataRequest(topics=[]), 9).topics == []
    assert driver.fatal is None
    assert not driver.reports


def test_the_answer_to_all_topics_is_encoded_in_turns_once_and_shared(driver, monkeypatch):
    monkeypatch.setattr(large_responses, "FEW", 10)
    monkeypatch.setattr(large_responses, "SLICE_BYTES", 100)
    peer = driver.connect()
    expected = [CreatableTopic(name=f"t{number:03}", num_partitions=2, replication_factor=1) for number in range(30)]
    peer.ask(CreateTopicsRequest(topics=expected, timeout_ms=1000), 5)
    driver.turns = 0
    first = peer.ask(MetadataRequest(topics=None), 9)
    turns = driver.turns
    assert turns >= 1
    assert peer.ask(MetadataRequest(topics=None), 9) == first
    assert driver.turns == turns
    assert [topic.name for topic in first.topics] == [f"t{number:03}" for number in range(30)]
    assert {len(topic.partitions) for topic in first.topics} == {2}


def test_many_groups_are_listed_in_turns(driver, monkeypatch):
    monkeypatch.setattr(administration, "_GROUPS_PER_SLICE", 2)
    peer = driver.connect()
    create_topic(peer, "t")
    peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    names = [f"g{number}" for number in range(7)]
    for name in names:
        partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=0)]
        topic = OffsetCommitRequestTopic(name="t", partitions=partitions)
        peer.ask(OffsetCommitRequest(group_id=name, generation_id_or_member_epoch=-1, topics=[topic]), 7)
    driver.turns = 0
    response = peer.ask(ListGroupsRequest(), 4)
    assert sorted(group.group_id for group in response.groups) == names
    assert driver.turns == 4
    assert not peer.ask(ListGroupsRequest(states_filter=["Stable"]), 4).groups


def test_a_page_of_many_topics_is_described_in_turns(driver):
    peer = driver.connect()
    create_topic(peer, "t7")
    requests = [TopicRequest(name=f"t{number}") for number in range(3000)]
    driver.turns = 0
    response = peer.ask(DescribeTopicPartitionsRequest(topics=requests, response_partition_limit=2000), 0)
    assert driver.turns >= 3
    assert [topic.name for topic in response.topics] == sorted(topic.name for topic in requests)
    assert [topic.name for topic in response.topics if topic.error_code == 0] == ["t7"]


@pytest.mark.parametrize("version", [FETCH_VERSION, 12])
def test_a_large_answer_has_its_records(driver, monkeypatch, version):
    monkeypatch.setattr(large_responses, "FEW", 10)
    peer = driver.connect()
    names = [f"t{number:02}" for number in range(20)]
    for name in names:
        create_topic(peer, name)
        peer.ask(produce(name, batch(driver, name.encode() * 500)), 9)
    expected = [FetchTopic(topic=name, partitions=[FetchPartition(partition_max_bytes=1 << 20)]) for name in names]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 24, session_epoch=-1, topics=expected)
    response = peer.ask(request, version)
    assert [topic.topic for topic in response.responses] == names
    for topic in response.responses:
        assert topic.topic.encode() * 500 in bytes(topic.partitions[0].records)


def test_large_requests_of_several_clients_do_not_share_a_turn(driver, monkeypatch):
    """As many turns as slices: a hundred clients must not make one turn a hundred times as long."""
    peers = [driver.connect() for _ in range(4)]
    driver.between = lambda: None
    request = DeleteTopicsRequest(topic_names=[f"a topic of a long name, {number}" for number in range(3000)])
    per_turn = []

    def during() -> None:
        per_turn.append(sum(len(peer.responses) for peer in peers))

    with monkeypatch.context() as patched:
        held = []
        patched.setattr(driver, "_event_of", lambda effect: held.append(effect))
        for peer in peers:
            peer.send(request, 5)
    driver.between = during
    driver._carry_out(held)
    assert [len(peer.responses[0].responses) for peer in peers] == [3000] * 4
    assert driver.turns >= 4 * 4
    assert all(after - before <= 1 for before, after in pairwise(per_turn)), per_turn


def test_a_large_answer_behind_which_a_fetch_waits_does_not_keep_it_for_a_client_that_leaves(driver, monkeypatch):
    monkeypatch.setattr(large_responses, "FEW", 0)
    monkeypatch.setattr(large_responses, "SLICE_BYTES", 0)
    peer = driver.connect()
    create_topic(peer, "t")
    driver.hold_syncs = True
    peer.send(produce("t", batch(driver, b"a")), 9)
    peer.send(fetch("t", 1, max_wait_ms=1 << 30), FETCH_VERSION)
    driver.release()
    assert len(peer.responses) == 1
    assert driver.node._delayed_fetches._by_key
    driver.disconnect(peer)
    assert not driver.node._delayed_fetches._by_key


def test_a_shutdown_lets_a_large_request_be_decided(driver):
    peer = driver.connect()
    create_topic(peer, "t1500")

    def shut_down() -> None:
        driver.between = lambda: None
        driver.shutdown()
        assert not driver.stopped

    driver.between = shut_down
    names = [f"a topic of a long name, {number}" for number in range(3000)]
    peer.send(DeleteTopicsRequest(topic_names=[*names, "t1500"], timeout_ms=1000), 5)
    assert driver.stopped
    assert len(peer.responses.popleft().responses) == 3001


def test_many_transactions_are_listed_in_turns(driver, monkeypatch):
    monkeypatch.setattr(questions, "_MANY", 2)
    peer = driver.connect()
    for number in range(4):
        peer.ask(InitProducerIdRequest(transactional_id=f"id{number}", transaction_timeout_ms=1000), 4)
    driver.turns = 0
    response = peer.ask(ListTransactionsRequest(), 1)
    assert sorted(state.transactional_id for state in response.transaction_states) == [f"id{n}" for n in range(4)]
    assert driver.turns == 50


def test_a_delete_of_many_partitions_writes_their_starts_down_once(driver, monkeypatch):
    peer = driver.connect()
    create_topic(peer, "t", 20)
    for partition in range(20):
        peer.ask(produce("t", batch(driver, b"a", b"b"), partition), 9)
    written = []
    checkpoint = driver.node.logs.checkpoint_log_starts
    monkeypatch.setattr(driver.node.logs, "checkpoint_log_starts", lambda rising: written.append(checkpoint(rising)))
    partitions = [DeleteRecordsPartition(partition_index=index, offset=1) for index in range(20)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=partitions)], timeout_ms=1000)
    assert {partition.low_watermark for partition in peer.ask(request, 2).topics[0].partitions} == {1}
    assert len(written) == 1
    driver.crash_and_restart(1)
    assert {log.log_start_offset for log in driver.node.logs.logs.values()} == {1}


def test_what_comes_behind_a_large_request_of_markers_is_decided_behind_all_of_them(driver):
    peer = driver.connect()
    create_topic(peer, "t")
    driver.hold_syncs = True
    marker = WritableTxnMarker(topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])])
    peer.send(WriteTxnMarkersRequest(markers=[marker.replaced(producer_id=number) for number in range(2100)]), 1)
    peer.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    assert "t" in driver.node.cluster.image.topics
    while driver.held:
        driver.release()
    answers = [marker.topics[0].partitions[0].error_code for marker in peer.responses[0].markers]
    assert answers == [0] * 2100
    assert "t" not in driver.node.cluster.image.topics


@pytest.mark.slow
def test_who_may_send_larger_requests_may_say_more_in_them(driver):
    peer, other = driver.connect(), driver.connect()
    short = [ListOffsetsPartition(partition_index=index) for index in range(40_000)]
    peer.send(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=short)]), 1)
    assert peer.closed
    names = [MetadataRequestTopic(name=f"a topic of forty thousand, of number {number:06}") for number in range(40_000)]
    response = other.ask(MetadataRequest(topics=names, allow_auto_topic_creation=False), 9)
    assert len(response.topics) == 40_000


def test_what_is_named_thousands_of_times_is_told_once(driver):
    peer = driver.connect()
    create_topic(peer, "t")
    peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    opened = peer.ask(InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=1000), 4)
    peer.ask(produce("t", batch(driver, b"a", producer_id=opened.producer_id, producer_epoch=0, base_sequence=0)), 9)
    many = 5000
    assert len(peer.ask(DescribeGroupsRequest(groups=["g"] * many), 5).groups) == 1
    assert len(peer.ask(DescribeTransactionsRequest(transactional_ids=["id"] * many), 0).transaction_states) == 1
    broker = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    assert len(peer.ask(DescribeConfigsRequest(resources=[broker] * many), 4).results) == 1
    everything = OffsetFetchRequestGroup(group_id="g", topics=None)
    assert len(peer.ask(OffsetFetchRequest(groups=[everything] * many), 8).groups) == 1
    requests = [ProducersOf(name="t", partition_indexes=[0] * 3)] * many
    response = peer.ask(DescribeProducersRequest(topics=requests), 0)
    assert sum(len(topic.partitions) for topic in response.topics) == 1
    assert response.topics[0].partitions[0].active_producers[0].producer_id == opened.producer_id


def test_thousands_of_share_states_leave_others_their_turn(driver):
    large, small = driver.connect(), driver.connect()
    create_topic(large, "t", 2)
    key = key_of(driver)
    find(large, key.coordinator_key)
    answered = []

    def ask_between() -> None:
        driver.between = lambda: None
        answered.append(ask(small, initialize(key._replace(partition=1)))[0].error_code)
        assert not large.responses

    driver.between, driver.turns = ask_between, 0
    replies = ask(large, *(initialize(key._replace(partition=index)) for index in (0, *range(2, 1002))))
    assert answered == [0]
    assert driver.turns >= 4
    assert [reply.error_code for reply in replies] == [0] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 1000
