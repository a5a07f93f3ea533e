"""A request about thousands of partitions of one topic leaves others their turn, and is answered as if it had not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.handlers.broker import time_slices as slices
from oncelog.handlers.fetch.reads import FetchReads
from oncelog.handlers.groups import offset_commit
from oncelog.handlers.produce import handler as produce_handler
from oncelog.node.replication.partitions import LOGS_PER_SLICE
from oncelog.node.requests import connections as closed_connections
from oncelog.node.requests import dispatch, large_responses
from oncelog.records.builder import build_batch
from oncelog.records.compression import Codec
from oncelog.records.record import Record
from oncelog.runtime.metrics.broker_metrics import Metrics
from oncelog.storage.log import read, record_validation
from oncelog.storage.log.read import RECORDS_PER_STEP
from oncelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from oncelog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from oncelog.wire.messages.describe_producers import DescribeProducersRequest
from oncelog.wire.messages.describe_producers import TopicRequest as ProducersOf
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.hostile.turns import Turns
from tests.scenario.node.driver import START_MS
from tests.scenario.node.requests import batch, create_topic, produce

PARTITIONS = 20


@pytest.fixture
def driver() -> Turns:
    return with_records()


def three_a_turn(monkeypatch) -> None:
    """Treat three items as a request of thousands is treated."""
    monkeypatch.setattr(dispatch, "LARGE_BYTES", 0)
    monkeypatch.setattr(slices, "ITEMS", 3)
    monkeypatch.setattr(slices, "ITEMS_WHILE_CREATING", 3)
    monkeypatch.setattr(produce_handler, "ITEMS_WHILE_CREATING", 3)
    monkeypatch.setattr(offset_commit, "ITEMS", 3)
    monkeypatch.setattr(large_responses, "FEW", 2)
    monkeypatch.setattr(large_responses, "SLICE_BYTES", 20)


def with_records() -> Turns:
    """Two topics; every second partition of the first has two records."""
    driver = Turns()
    peer = driver.connect()
    create_topic(peer, "t", PARTITIONS)
    create_topic(peer, "u", 2)
    peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    for partition in range(0, PARTITIONS, 2):
        peer.ask(produce("t", batch(driver, b"a", b"b"), partition), 9)
    return driver


def offsets_of(name: str, *indexes: int) -> ListOffsetsTopic:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in indexes]
    return ListOffsetsTopic(name=name, partitions=partitions)


def deletion(name: str, *offsets: tuple[int, int]) -> DeleteRecordsTopic:
    return DeleteRecordsTopic(
        name=name,
        partitions=[DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in offsets],
    )


def epochs_of(name: str, *indexes: int) -> OffsetForLeaderTopic:
    partitions = [OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in indexes]
    return OffsetForLeaderTopic(topic=name, partitions=partitions)


def marker_of(producer_id: int, *indexes: int) -> WritableTxnMarker:
    topics = [WritableTxnMarkerTopic(name=name, partition_indexes=list(indexes)) for name in ("t", "gone")]
    return WritableTxnMarker(producer_id=producer_id, topics=topics)


def fetch_of(*indexes: int, max_wait_ms: int = 0, min_bytes: int = 1) -> FetchRequest:
    expected = [FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in indexes]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=expected)],
    )


def produce_of(*indexes: int, acks: int = -1, transactional_id: str | None = None, **options: object) -> ProduceRequest:
    records = build_batch([Record(0, START_MS, None, b"v", ())], **options)
    data = [PartitionProduceData(index=index, records=bytes(records)) for index in indexes]
    topics = [TopicProduceData(name=name, partition_data=data) for name in ("u", "t", "x")]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics, transactional_id=transactional_id)


ALL = range(PARTITIONS + 5)
REQUESTS = {
    "ListOffsets": (
        ListOffsetsRequest(
            replica_id=-1, topics=[offsets_of("u", 1), offsets_of("t", *ALL), offsets_of("x", 1), offsets_of("t", 3)]
        ),
        5,
    ),
    "DeleteRecords": (
        DeleteRecordsRequest(
            timeout_ms=1000,
            topics=[
                deletion("t", *((index, 1) for index in ALL)),
                deletion("u", (0, 0)),
                deletion("t", (4, -1), (6, 9)),
            ],
        ),
        2,
    ),
    "OffsetForLeaderEpoch": (
        OffsetForLeaderEpochRequest(topics=[epochs_of("t", *ALL, 2), epochs_of("u", 0), epochs_of("t", 1)]),
        4,
    ),
    "ElectLeaders": (
        ElectLeadersRequest(
            timeout_ms=1000,
            topic_partitions=[TopicPartitions(topic=name, partitions=list(ALL)) for name in ("u", "t", "x")],
        ),
        2,
    ),
    "DescribeProducers": (
        DescribeProducersRequest(
            topics=[ProducersOf(name=name, partition_indexes=[*ALL, 1]) for name in ("t", "x", "t", "u")]
        ),
        0,
    ),
    "DescribeTransactions": (DescribeTransactionsRequest(transactional_ids=[f"id{n}" for n in range(30)]), 0),
    "DescribeLogDirs": (
        DescribeLogDirsRequest(
            topics=[DescribableLogDirTopic(topic=name, partitions=list(ALL)) for name in ("u", "t")]
        ),
        4,
    ),
    "everything in DescribeLogDirs": (DescribeLogDirsRequest(topics=None), 4),
    "OffsetCommit": (
        OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=-1,
            topics=[
                OffsetCommitRequestTopic(
                    name=name, partitions=[OffsetCommitRequestPartition(partition_index=index) for index in ALL]
                )
                for name in ("u", "t", "x", "t")
            ],
        ),
        8,
    ),
    "WriteTxnMarkers": (WriteTxnMarkersRequest(markers=[marker_of(1, *ALL), marker_of(2, 1, 2), marker_of(1, 5)]), 1),
    "Fetch": (fetch_of(*ALL), 11),
    "Produce": (produce_of(*ALL), 9),
    "Produce without waiting for the disk": (produce_of(*ALL, acks=1), 9),
    "a Fetch that waits in vain": (fetch_of(*range(PARTITIONS), max_wait_ms=100, min_bytes=1 << 19), 11),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_what_is_worked_on_in_turns_is_answered_as_if_it_were_not(monkeypatch, name):
    request, version = REQUESTS[name]

    def answer() -> tuple[object, int]:
        driver = with_records()
        peer = driver.connect()
        driver.turns = 0
        peer.send(request, version)
        driver.advance(1000)
        (response,) = peer.responses
        return response, driver.turns

    at_once, no_turns = answer()
    three_a_turn(monkeypatch)
    in_slices, turns = answer()
    assert in_slices == at_once
    assert no_turns == 0
    assert turns > 5


def test_records_that_come_while_thousands_of_partitions_are_read_are_not_waited_for(driver, monkeypatch):
    three_a_turn(monkeypatch)
    peer, other = driver.connect(), driver.connect()

    def come() -> None:
        if driver.turns == 6:  # partition 1 has been read, the last ones have not
            driver.between = lambda: None
            other.ask(produce("t", batch(driver, b"came"), 1), 9)

    driver.between = come
    driver.turns = 0
    peer.send(fetch_of(*range(1, PARTITIONS, 2), max_wait_ms=1 << 30), 11)
    (response,) = peer.responses
    assert bytes(response.responses[0].partitions[0].records).endswith(b"came\0")


def test_a_fetch_that_waits_for_thousands_is_asked_only_about_what_changed(driver, monkeypatch):
    looked_at = []
    available_bytes = FetchReads.available_bytes

    def counted(reads, name, request):
        looked_at.append(name.partition)
        return available_bytes(reads, name, request)

    monkeypatch.setattr(FetchReads, "available_bytes", counted)
    peer, other = driver.connect(), driver.connect()
    peer.send(fetch_of(*range(PARTITIONS), max_wait_ms=1000, min_bytes=1 << 19), 11)
    assert not peer.responses
    looked_at.clear()
    for partition in (3, 4):
        other.ask(produce("t", batch(driver, b"a"), partition), 9)
    assert looked_at == [3, 4]
    other.ask(produce("t", batch(driver, bytes(1 << 19)), 4), 9)
    assert looked_at == [3, 4, 4]
    assert len(peer.responses) == 1


@pytest.mark.parametrize("timestamp", [START_MS + 20_000, -3])
def test_a_record_is_searched_for_among_thousands_in_turns(driver, timestamp):
    """A megabyte that came may be a hundred, of fifteen million records: looking at them takes many seconds."""
    peer = driver.connect()
    many = [Record(number, START_MS + number, None, b"", ()) for number in range(20_001)]
    data = [PartitionProduceData(index=1, records=bytes(build_batch(many, codec=Codec.ZSTD)))]
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=data)])
    assert peer.ask(request, 9).responses[0].partition_responses[0].error_code == 0
    partition = ListOffsetsPartition(partition_index=1, timestamp=timestamp)
    topics = [ListOffsetsTopic(name="t", partitions=[partition]), offsets_of("u", 1)]
    driver.turns = 0
    first, second = peer.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 7).topics
    result = first.partitions[0]
    assert (result.error_code, result.timestamp, result.offset) == (0, START_MS + 20_000, 20_000)
    assert second.partitions[0].offset == 0
    assert driver.turns == len(many) // RECORDS_PER_STEP


@pytest.mark.parametrize("wrong", [None, 3, 11_999])
@pytest.mark.parametrize("acks", [1, -1])
def test_thousands_of_records_are_looked_into_in_turns(driver, monkeypatch, wrong, acks):
    """Every record of a compacted topic has a key, as if they had all been looked at at once."""
    peer = driver.connect()
    create_topic(peer, "c", cleanup_policy="compact")
    records = [Record(n, START_MS, None if n == wrong else b"k", None, ()) for n in range(12_000)]
    data = [PartitionProduceData(index=0, records=bytes(build_batch(records, codec=Codec.ZSTD)))]
    request = ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="c", partition_data=data), *produce_of(1).topic_data],
    )
    driver.turns = 0
    in_slices = peer.ask(request, 9)
    assert driver.turns == (2 if wrong is None else 4), "to inspect them, and to name the wrong one"
    with monkeypatch.context() as patched:
        patched.setattr(record_validation, "RECORDS_PER_STEP", 1 << 31)
        driver = with_records()
        other = driver.connect()
        create_topic(other, "c", cleanup_policy="compact")
        driver.turns = 0
        at_once = other.ask(request, 9)
        assert driver.turns == 0
    assert in_slices == at_once
    answered = in_slices.responses[0].partition_responses[0]
    assert answered.error_code == (ErrorCode.NONE if wrong is None else ErrorCode.INVALID_RECORD)
    assert [error.batch_index for error in answered.record_errors] == ([] if wrong is None else [wrong])


def test_of_a_batch_refused_for_its_records_ten_thousand_are_named(driver):
    peer = driver.connect()
    create_topic(peer, "c", cleanup_policy="compact")
    records = [Record(number, START_MS, None, None, ()) for number in range(record_validation.NAMED_ERRORS + 1_000)]
    data = [PartitionProduceData(index=0, records=bytes(build_batch(records, codec=Codec.ZSTD)))]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="c", partition_data=data)])
    (answered,) = peer.ask(request, 9).responses[0].partition_responses
    assert len(answered.record_errors) == record_validation.NAMED_ERRORS
    assert f"due to {len(records)} record errors in total" in answered.error_message


@pytest.mark.parametrize("wanted", ["gzip", "uncompressed", "zstd"])
@pytest.mark.parametrize("records", [(b"v", 12_000), (bytes(200_000), 3)])
def test_what_is_much_is_compressed_anew_aside(driver, monkeypatch, wanted, records):
    """Millions of records, or much that was compressed to little: the same batch as if it had been done at once."""
    value, count = records
    peer = driver.connect()
    create_topic(peer, "c", compression_type=wanted)
    made = [Record(number, START_MS, b"k", value, (("h", b"i"),)) for number in range(count)]
    data = PartitionProduceData(index=0, records=bytes(build_batch(made, codec=Codec.LZ4)))
    topic = TopicProduceData(name="c", partition_data=[data])
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    driver.turns = 0
    (aside,) = peer.ask(request, 9).responses[0].partition_responses
    assert driver.turns == -(-count // record_validation.RECORDS_PER_STEP)
    log = driver.node.logs.logs[TopicPartition(TopicName("c"), 0)]
    monkeypatch.setattr(record_validation, "RECORDS_PER_STEP", 1 << 31)
    monkeypatch.setattr(log, "room", memoryview(bytearray(1 << 20)))
    driver.turns = 0
    (at_once,) = peer.ask(request, 9).responses[0].partition_responses
    assert driver.turns == 0
    assert (aside.error_code, at_once.error_code, at_once.base_offset) == (0, 0, count)
    written = log.segments[0].file.read(0, log.segments[0].file.size())
    first, second = written[: len(written) // 2], written[len(written) // 2 :]
    assert first[8:] == second[8:], "but for the base offset"


def test_a_broker_that_stops_first_appends_what_is_looked_into(driver):
    peer = driver.connect()
    create_topic(peer, "c", cleanup_policy="compact")
    records = [Record(number, START_MS, b"k", None, ()) for number in range(12_000)]
    data = [PartitionProduceData(index=0, records=bytes(build_batch(records, codec=Codec.ZSTD)))]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="c", partition_data=data)])

    def stop() -> None:
        driver.between = lambda: None
        driver.shutdown()
        assert not driver.stopped

    driver.between = stop
    peer.send(request, 9)
    assert peer.responses[0].responses[0].partition_responses[0].error_code == 0
    assert driver.stopped


def test_markers_of_a_request_that_is_given_up_are_written_down(driver, monkeypatch):
    """Its client has closed, and others have left more behind."""
    three_a_turn(monkeypatch)
    monkeypatch.setattr(closed_connections, "MAX_CONNECTIONS", 0)
    peer = driver.connect()

    def leave() -> None:
        if driver.turns == 2:
            driver.between = lambda: None
            driver.disconnect(peer)

    driver.turns = 0
    driver.between = leave
    peer.send(WriteTxnMarkersRequest(markers=[marker_of(1, *range(8)), marker_of(2, 1)]), 1)
    (record,) = driver.audited
    assert record.transaction["producer_id"] == 1
    outcomes = [entry["outcome"] for entry in record.transaction["partitions"]]
    assert outcomes[:8] == ["NONE"] * 2 + ["OPERATION_NOT_ATTEMPTED"] * 6


def test_records_of_a_transaction_that_is_ended_between_their_turns_are_refused(driver, monkeypatch):
    peer, other = driver.connect(), driver.connect()
    for kind in (0, 1):
        peer.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=["id"]), 4)
    opened = peer.ask(InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=10_000), 4)
    identity = {"producer_id": opened.producer_id, "producer_epoch": opened.producer_epoch}
    topics = [AddPartitionsToTxnTopic(name="t", partitions=list(range(PARTITIONS)))]
    named = {f"v3_and_below_{name}": value for name, value in {"transactional_id": "id", **identity}.items()}
    peer.ask(AddPartitionsToTxnRequest(v3_and_below_topics=topics, **named), 3)
    three_a_turn(monkeypatch)

    def end_in_the_middle() -> None:
        if any(log.producers.has_open_transaction(opened.producer_id) for log in driver.node.logs.logs.values()):
            driver.between = lambda: None
            other.send(EndTxnRequest(transactional_id="id", committed=False, **identity), 3)

    driver.between = end_in_the_middle
    request = produce_of(
        *range(PARTITIONS), acks=1, transactional_id="id", transactional=True, base_sequence=0, **identity
    )
    (_, topic, _) = peer.ask(request, 9).responses
    assert other.responses.popleft().error_code == 0
    outcomes = [response.error_code for response in topic.partition_responses]
    appended = outcomes.count(ErrorCode.NONE)
    assert 0 < appended < PARTITIONS
    assert outcomes[appended:] == [ErrorCode.INVALID_TXN_STATE] * (PARTITIONS - appended)
    assert not any(log.producers.has_open_transaction(opened.producer_id) for log in driver.node.logs.logs.values())


def test_who_asks_for_all_partitions_of_a_new_topic_does_not_have_them_created_in_one_turn(driver):
    peer = driver.connect()
    created: list[int] = []
    create = driver.node.logs.create

    def counted(*arguments, **options):
        created[-1] += 1
        return create(*arguments, **options)

    driver.node.logs.create = counted
    handle = driver.node.handle

    def in_one_event(event, now_ms):
        created.append(0)
        return handle(event, now_ms)

    driver.node.handle = in_one_event
    many = 400
    driver.hold_metadata = True
    topic = CreatableTopic(name="new", num_partitions=many, replication_factor=1)
    peer.send(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
    peer.send(ListOffsetsRequest(replica_id=-1, topics=[offsets_of("new", *range(many))]), 5)
    peer.send(DescribeLogDirsRequest(topics=None), 4)
    driver.hold_metadata = False
    driver.release()
    assert len(peer.responses) == 3
    assert {partition.error_code for partition in peer.responses[1].topics[0].partitions} == {ErrorCode.NONE}
    assert sum(created) == many
    assert max(created) <= slices.ITEMS_WHILE_CREATING + LOGS_PER_SLICE


def test_a_scrape_creates_no_logs(driver):
    peer, other = driver.connect(), driver.connect()
    group = OffsetCommitRequestTopic(
        name="new", partitions=[OffsetCommitRequestPartition(partition_index=index) for index in range(380, 400)]
    )
    scraped = []

    def scrape() -> None:
        driver.between = lambda: None
        other.ask(OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[group]), 8)
        before = len(driver.node.logs.logs)
        metrics = Metrics(driver.node, SimpleNamespace(), SimpleNamespace(), SimpleNamespace())
        metrics._group_lag()
        scraped.append(len(driver.node.logs.logs) - before)

    driver.between = scrape
    create_topic(peer, "new", 400)
    assert scraped == [0]


def test_what_is_decompressed_is_held_for_one_client_at_a_time(driver, monkeypatch):
    """A hundred megabytes from turn to turn for a few bytes of request: the others wait."""
    open_now, most = set(), []
    records_in = read.records_in

    def counted(*arguments):
        key = object()
        open_now.add(key)
        most.append(len(open_now))
        try:
            yield from records_in(*arguments)
        finally:
            open_now.discard(key)

    monkeypatch.setattr(read, "records_in", counted)
    first, second, third, fourth = (driver.connect() for _ in range(4))
    many = [Record(number, START_MS + number, None, b"", ()) for number in range(20_001)]
    data = [PartitionProduceData(index=1, records=bytes(build_batch(many, codec=Codec.ZSTD)))]
    first.ask(ProduceRequest(acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=data)]), 9)
    partition = ListOffsetsPartition(partition_index=1, timestamp=START_MS + 20_000)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[partition])])

    def come() -> None:
        driver.between = leave
        for peer in (second, third, fourth):
            peer.send(request, 7)

    def leave() -> None:
        driver.between = lambda: None
        driver.disconnect(first)  # who is looking
        driver.disconnect(third)  # who waits

    driver.between = come
    first.send(request, 7)
    for peer in (second, fourth):
        assert peer.responses[0].topics[0].partitions[0].offset == 20_000
    assert max(most) == 1
    assert not open_now
    assert not driver.node._offloaded._running
    assert driver.fatal is None
