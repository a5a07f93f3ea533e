"""Clients over their quotas: answered at once and told to wait, then not read until the time has passed."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.node.kernel.events import RequestReceived
from oncelog.wire.header import RequestHeader, encode_request
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from oncelog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.scenario.node.driver import Driver, Peer
from tests.scenario.node.requests import FETCH_VERSION, PRODUCE_VERSION, batch, create_topic, fetch, fetched, produce

CLIENT = (("client-id", None),)
USER = (("user", "ANONYMOUS"),)
THROTTLING_QUOTA_EXCEEDED = 89


def set_quota(peer: Peer, entity: tuple[tuple[str, str | None], ...] = CLIENT, **quotas: float | None) -> None:
    """Set quotas, or take them away (None)."""
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()]
    entry = EntryData(entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity], ops=ops)
    response = peer.ask(AlterClientQuotasRequest(entries=[entry]), 1)
    assert [entry.error_code for entry in response.entries] == [0], response


def started(**quotas: float) -> tuple[Driver, Peer]:
    """A node with a topic and quotas for every client id."""
    driver = Driver()
    peer = driver.connect()
    create_topic(peer, "t")
    set_quota(peer, **quotas)
    return driver, peer


def produced_bytes(driver: Driver, size: int, acks: int = -1):
    return produce("t", batch(driver, b"x" * size), acks=acks)


def test_a_producer_over_its_quota_is_answered_and_then_not_read() -> None:
    driver, peer = started(producer_byte_rate=1000.0)
    assert peer.ask(produced_bytes(driver, 5000), PRODUCE_VERSION).throttle_time_ms == 0
    assert not peer.paused
    response = peer.ask(produced_bytes(driver, 6000), PRODUCE_VERSION)
    assert response.responses[0].partition_responses[0].base_offset == 1  # written all the same
    assert 1000 <= response.throttle_time_ms <= 1500
    assert peer.paused
    peer.send(ApiVersionsRequest(), 0)
    driver.advance(response.throttle_time_ms - 1)
    assert (len(peer.responses), peer.paused) == (0, True)
    driver.advance(1)
    assert (len(peer.responses), peer.paused) == (1, False)


def test_a_produce_without_an_answer_is_throttled_too() -> None:
    driver, peer = started(producer_byte_rate=1000.0)
    peer.send(produced_bytes(driver, 20_000, acks=0), PRODUCE_VERSION)
    assert peer.paused
    driver.advance(60_000)
    assert not peer.paused
    assert peer.ask(fetch("t", 0), FETCH_VERSION).throttle_time_ms == 0


def test_what_was_decided_before_the_throttle_is_still_answered() -> None:
    driver, peer = started(producer_byte_rate=1000.0)
    driver.hold_syncs = True
    for _ in range(3):
        peer.send(produced_bytes(driver, 20_000), PRODUCE_VERSION)
    assert not peer.responses
    driver.release()
    assert len(peer.responses) == 3
    longest_ms = max(response.throttle_time_ms for response in peer.responses)
    driver.advance(longest_ms - 1)
    assert peer.paused
    driver.advance(1)
    assert not peer.paused


def test_others_are_not_throttled_and_a_closed_connection_is_forgotten() -> None:
    driver, peer = started()
    set_quota(peer, (("user", "somebody-else"),), producer_byte_rate=1.0)
    assert peer.ask(produced_bytes(driver, 50_000), PRODUCE_VERSION).throttle_time_ms == 0
    set_quota(peer, USER, producer_byte_rate=1000.0)
    assert peer.ask(produced_bytes(driver, 50_000), PRODUCE_VERSION).throttle_time_ms > 0
    driver.disconnect(peer)
    driver.advance(600_000)
    assert driver.fatal is None


def test_a_quota_that_is_taken_away_holds_no_longer() -> None:
    driver, peer = started(producer_byte_rate=1000.0)
    set_quota(peer, producer_byte_rate=None)
    assert not driver.node.cluster.quotas.enabled
    assert peer.ask(produced_bytes(driver, 50_000), PRODUCE_VERSION).throttle_time_ms == 0


def test_a_consumer_over_its_quota_gets_nothing_and_reads_the_same_later() -> None:
    driver, peer = started()
    peer.ask(produced_bytes(driver, 6000), PRODUCE_VERSION)
    set_quota(peer, consumer_byte_rate=1000.0)
    assert len(fetched(peer.ask(fetch("t", 0), FETCH_VERSION))[2]) > 6000
    response = peer.ask(fetch("t", 0), FETCH_VERSION)
    assert response.responses == []
    assert response.throttle_time_ms > 1000
    assert peer.paused
    driver.advance(20_000)
    again = peer.ask(fetch("t", 0), FETCH_VERSION)
    assert (again.throttle_time_ms, len(fetched(again)[2]) > 6000) == (0, True)


def test_a_throttled_answer_leaves_the_fetch_session_as_it_was() -> None:
    driver, peer = started()
    peer.ask(produced_bytes(driver, 6000), PRODUCE_VERSION)
    expected = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_bytes=1 << 20, session_epoch=0, topics=[FetchTopic(topic="t", partitions=[expected])])
    opened = peer.ask(request, FETCH_VERSION)
    assert opened.session_id != 0
    set_quota(peer, consumer_byte_rate=100.0)
    driver.node.cluster.quotas.fetch.record("ANONYMOUS", "driver", 2000, driver.now_ms)
    peer.ask(produced_bytes(driver, 10), PRODUCE_VERSION)
    on = FetchRequest(max_bytes=1 << 20, session_id=opened.session_id, session_epoch=1)
    throttled = peer.ask(on, FETCH_VERSION)
    assert (throttled.session_id, throttled.responses, throttled.throttle_time_ms > 0) == (opened.session_id, [], True)
    driver.advance(throttled.throttle_time_ms)
    set_quota(peer, consumer_byte_rate=None)
    on = FetchRequest(max_bytes=1 << 20, session_id=opened.session_id, session_epoch=2)
    told = peer.ask(on, FETCH_VERSION).responses[0].partitions[0]
    assert (told.high_watermark, len(told.records) > 6000) == (2, True)


def test_a_consumer_is_given_no_more_at_once_than_its_quota_lets_through() -> None:
    driver, peer = started()
    for _ in range(20):
        peer.ask(produced_bytes(driver, 1000), PRODUCE_VERSION)
    set_quota(peer, consumer_byte_rate=500.0)
    response = peer.ask(fetch("t", 0), FETCH_VERSION)
    driver.advance(response.throttle_time_ms)  # what stands around the records may be too much by a little
    response = peer.ask(fetch("t", 0), FETCH_VERSION)
    assert response.throttle_time_ms == 0
    assert 4000 < len(fetched(response)[2]) <= 5000


def test_followers_are_not_throttled() -> None:
    driver, peer = started()
    peer.ask(produced_bytes(driver, 60_000), PRODUCE_VERSION)
    set_quota(peer, consumer_byte_rate=1.0, request_percentage=0.001)
    requests = fetch("t", 0, max_wait_ms=0)
    requests.replica_id = 1
    assert peer.ask(requests, FETCH_VERSION).throttle_time_ms == 0
    assert not peer.paused


def request_that_took(driver: Driver, peer: Peer, spent_ns: int) -> Any:
    """The answer to a request that says what the one before it took."""
    header = RequestHeader(MetadataRequest.API_KEY, 12, 1000, "driver")
    peer._asked[1000] = (MetadataRequest(topics=[]), 12)
    frame = b"".join(bytes(chunk) for chunk in encode_request(header, MetadataRequest(topics=[])))[4:]
    driver.dispatch(RequestReceived(peer.id, memoryview(bytearray(frame)), spent_ns))
    return peer.responses.popleft()


def test_request_time_is_what_the_outside_measured() -> None:
    driver, peer = started(request_percentage=10.0)
    assert driver.node.cluster.quotas.measures_time
    assert request_that_took(driver, peer, 900_000_000).throttle_time_ms == 0
    assert request_that_took(driver, peer, 300_000_000).throttle_time_ms == 1000  # one window at most
    assert peer.paused
    driver.advance(1000)
    assert not peer.paused
    set_quota(peer, request_percentage=None)
    assert not driver.node.cluster.quotas.measures_time
    assert request_that_took(driver, peer, 10**12).throttle_time_ms == 0


MARKERS = WriteTxnMarkersRequest(
    markers=[WritableTxnMarker(producer_id=1, topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])])]
)
ADDITIONS = AddPartitionsToTxnRequest(
    transactions=[
        AddPartitionsToTxnTransaction(
            transactional_id="x", producer_id=1, topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])]
        )
    ]
)


@pytest.mark.parametrize(("request_", "version"), [(MARKERS, 1), (ADDITIONS, 4)], ids=["markers", "additions"])
@pytest.mark.parametrize(("principal", "waits"), [("User:bob", True), ("User:broker", False)])
def test_what_only_brokers_may_ask_is_counted_where_it_is_refused(
    request_: object, version: int, principal: str, waits: bool
) -> None:
    """As in Apache Kafka: nobody escapes a quota by posing as a broker."""
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    driver = Driver({"authorizer.class.name": authorizer, "super.users": "User:broker"})
    admin, peer = (driver.connect(principal=item) for item in ("User:broker", principal))
    create_topic(admin, "t")
    set_quota(admin, (("user", principal.partition(":")[2]),), request_percentage=1.0)
    connection = driver.node.connections.by_id[peer.id]
    connection.spent_ns = 5_000_000_000
    peer.send(request_, version)
    assert peer.paused is waits


def test_the_shared_answer_of_all_topics_keeps_its_own_throttle_time() -> None:
    driver, peer = started()
    everything = MetadataRequest(topics=None)
    plain = peer.ask(everything, 12)
    set_quota(peer, request_percentage=1.0)
    other = driver.connect()
    driver.node.connections.by_id[peer.id].spent_ns = 10**9
    assert peer.ask(everything, 12).throttle_time_ms > 0
    set_quota(other, request_percentage=None)
    assert other.ask(everything, 12) == plain


def new_topic(name: str, partitions: int) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=1000)


def test_partitions_over_the_quota_are_refused_by_versions_that_know_it() -> None:
    driver, peer = started(controller_mutation_rate=2.0)
    assert peer.ask(new_topic("a", 30), 6).topics[0].error_code == 0  # a bucket of 22 may be overdrawn once
    refused = peer.ask(new_topic("b", 1), 6)
    assert (refused.topics[0].error_code, refused.throttle_time_ms) == (THROTTLING_QUOTA_EXCEEDED, 4000)
    assert peer.paused
    driver.advance(4000)
    assert peer.ask(new_topic("b", 5), 6).topics[0].error_code == 0
    deletion = peer.ask(DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000), 5)
    assert deletion.responses[0].error_code == THROTTLING_QUOTA_EXCEEDED
    driver.advance(deletion.throttle_time_ms)
    more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="b", count=8, assignments=None)], timeout_ms=1000)
    assert peer.ask(more, 3).results[0].error_code == 0
    assert peer.ask(more, 3).results[0].error_code == 37  # wrong requests are not charged
    assert "a" in driver.node.cluster.image.topics


def test_older_versions_get_their_partitions_and_wait() -> None:
    driver, peer = started(controller_mutation_rate=2.0)
    created = peer.ask(new_topic("a", 30), 5)
    assert (created.topics[0].error_code, created.throttle_time_ms, peer.paused) == (0, 4000, True)
    driver.advance(4000)
    deleted = peer.ask(DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000), 4)
    assert (deleted.responses[0].error_code, deleted.throttle_time_ms) == (0, 15_000)


def test_a_charge_is_taken_once_however_often_the_request_is_decided() -> None:
    driver, peer = started(controller_mutation_rate=1.0)
    driver.hold_metadata = True
    other = driver.connect()
    peer.send(new_topic("a", 8), 7)
    other.send(new_topic("a", 8), 7)  # loses, and is decided again
    driver.release()
    assert [peer.responses.popleft().topics[0].error_code, other.responses.popleft().topics[0].error_code] == [0, 36]
    (usage,) = driver.node.cluster.quotas.mutations.usage(driver.now_ms)
    assert usage.rate == 11 - 16


def test_a_topic_over_the_quota_does_not_come_into_being_by_itself() -> None:
    driver, peer = started(controller_mutation_rate=2.0)
    assert peer.ask(new_topic("a", 30), 7).topics[0].error_code == 0
    request = MetadataRequest(topics=[MetadataRequestTopic(name="b")], allow_auto_topic_creation=True)
    assert peer.ask(request, 9).topics[0].error_code == 5  # LEADER_NOT_AVAILABLE: clients ask again
    assert "b" not in driver.node.cluster.image.topics
    driver.advance(4000)
    assert peer.ask(request, 9).topics[0].error_code == 0
