"""Message sets of formats 0 and 1 in a client: positions move over them, records come out of them, what is cut is asked
for again with more room."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode, PeerError
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import UnsupportedRequest
from oncelog.client.machine.connection import Connection, Phase
from oncelog.client.machine.consumed_records import ConsumedRecord, UnreadableRecords, read_fetched
from oncelog.client.machine.metadata import ClusterView
from oncelog.client.machine.positions import Fetched, FetchSettings, Positions
from oncelog.client.machine.versions import OLD_BROKERS
from oncelog.client.machine.whole_batches import bytes_of_cut, formats, whole_batches
from oncelog.legacy.message_set.entry import Message, TimestampType
from oncelog.records.builder import build_batch
from oncelog.records.compression import Codec
from oncelog.records.record import Record
from oncelog.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from oncelog.wire.messages.offset_commit import OffsetCommitRequest
from oncelog.wire.messages.produce import ProduceRequest
from tests.message_sets import write

A = TopicPartition(TopicName("t"), 0)


def messages(first: int, count: int, size: int = 1) -> list[Message]:
    kind = TimestampType.CREATE_TIME
    return [Message(at, 1000 + at, kind, b"k", b"v" * size, 1) for at in range(first, first + count)]


def batch(first: int, count: int) -> bytes:
    return bytes(build_batch([Record(-1, 7, None, b"v")] * count, base_offset=first))


MIXED = (
    write(messages(0, 3), 0)
    + write(messages(3, 3), 1, Codec.GZIP)
    + batch(6, 2)
    + write(messages(8, 1), 1)
    + batch(9, 1)
)


def records_of(data: bytes, position: int = 0) -> list[ConsumedRecord]:
    view = memoryview(data)
    return list(read_fetched(Fetched(A, view, 0, 0, 0, [], 0, position, 0, has_message_sets=True)))


def test_a_position_moves_over_entries_and_batches_alike() -> None:
    assert whole_batches(memoryview(MIXED), 0, old_formats=True) == (len(MIXED), 10)
    cut = memoryview(MIXED)[:-1]
    assert whole_batches(cut, 0, old_formats=True)[1] == 9


@pytest.mark.parametrize("data", [write(messages(0, 1), 0), write(messages(0, 1), 1)])
def test_without_being_asked_for_they_are_refused(data: bytes) -> None:
    with pytest.raises(PeerError, match="only format 2"):
        whole_batches(memoryview(data), 0)


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_cut_entry_is_cut_off(cut: int) -> None:
    whole = write(messages(0, 1), 0)
    assert whole_batches(memoryview(whole + whole[:0])[: len(whole) - min(cut, len(whole))], 0, old_formats=True) == (
        0,
        0,
    )


def test_formats_are_told_apart_in_runs() -> None:
    runs = [(bytes(MIXED[start:end]), old) for start, end, old in formats(memoryview(MIXED))]
    assert [old for _, old in runs] == [True, False, True, False]
    assert b"".join(data for data, _ in runs) == MIXED
    assert list(formats(memoryview(b""))) == []


def test_records_come_out_with_what_their_format_has() -> None:
    records = records_of(MIXED)
    assert [record.offset for record in records] == list(range(10))
    assert [(record.timestamp, record.timestamp_type) for record in records[2:5]] == [
        (-1, "none"),
        (1003, "create"),
        (1004, "create"),
    ]
    assert records[0].headers == ()
    assert [record.offset for record in records_of(MIXED, 4)] == [4, 5, 6, 7, 8, 9]


def test_a_wrong_checksum_is_an_error() -> None:
    damaged = bytearray(write(messages(0, 1), 0))
    damaged[-1] ^= 1
    with pytest.raises(UnreadableRecords, match="t-0 cannot be read"):
        records_of(bytes(damaged))


def test_a_message_that_comes_cut_is_asked_for_whole() -> None:
    large = write(messages(0, 1, size=5_000), 0)
    positions = Positions(ClusterView(), FetchSettings(partition_max_bytes=1_000, old_formats=True))
    positions.assign({A: 0})

    def ask(data: bytes) -> tuple[int, list[Fetched]]:
        message, requests, _ = positions.request([A])
        answered = FetchableTopicResponse(topic="t", partitions=[PartitionData(partition_index=0, records=data)])
        return message.topics[0].partitions[0].partition_max_bytes, positions.answered(
            requests, FetchResponse(responses=[answered]), 0
        )

    assert ask(large[:1_000]) == (1_000, [])
    limit, [result] = ask(large)
    assert limit == len(large) == bytes_of_cut(memoryview(large)[:20])
    assert result.next_offset == 1
    assert ask(b"")[0] == 1_000


def test_a_message_that_claims_to_be_enormous_is_not_asked_for() -> None:
    positions = Positions(ClusterView(), FetchSettings(old_formats=True))
    positions.assign({A: 0})
    _, requests, _ = positions.request([A])
    data = bytes(8) + (0x7FFF_FFFF).to_bytes(4, "big") + bytes(20)
    answered = FetchableTopicResponse(topic="t", partitions=[PartitionData(partition_index=0, records=data)])
    [result] = positions.answered(requests, FetchResponse(responses=[answered]), 0)
    assert result.error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_broker_that_does_not_know_api_versions_is_not_asked_for_them() -> None:
    connection = Connection("me", max_response_bytes=1000, assumed=OLD_BROKERS["0.8"])
    assert connection.start() == []
    assert connection.phase is Phase.READY
    assert connection.versions.choose(FetchRequest, old=True) == 0
    assert connection.versions.choose(OffsetCommitRequest, old=True) == 1
    with pytest.raises(UnsupportedRequest):
        connection.versions.choose(ProduceRequest)
