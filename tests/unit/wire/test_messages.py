"""Messages as handlers rely on them: versions, nulls, records that stay where they are."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.wire.chunks import Chunk, Records, chunk_size, join_chunks
from oncelog.wire.header import RequestHeader, encode_request, encode_response
from oncelog.wire.messages.api_versions import ApiVersionsResponse
from oncelog.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from oncelog.wire.messages.fetch import FetchableTopicResponse, FetchResponse, LeaderIdAndEpoch, PartitionData
from oncelog.wire.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsResponse
from oncelog.wire.messages.list_offsets import ListOffsetsTopicResponse as TopicResponse
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData


class Range(NamedTuple):
    """Something of a file."""

    file: str
    position: int
    size_bytes: int


def read(chunk: Chunk) -> bytes:
    """As the runtime would, from a file of nothing but "r"."""
    return bytes(chunk) if isinstance(chunk, bytes | bytearray | memoryview) else b"r" * chunk.size_bytes


def fetched(*records: Records | None) -> FetchResponse:
    partitions = [PartitionData(partition_index=i, records=found) for i, found in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def test_a_range_of_a_file_is_put_in_its_place_untouched() -> None:
    first, second, third = Range("a", 0, 70_000), Range("a", 70_000, 5), Range("b", 0, 0)
    chunks = encode_response(9, 1, 12, fetched(first, [second, third], None, b"small"))
    assert [chunk for chunk in chunks if isinstance(chunk, Range)] == [first, second, third]
    in_memory = b"".join(map(read, chunks))
    assert int.from_bytes(in_memory[:4], "big") == sum(map(chunk_size, chunks)) - 4 == len(in_memory) - 4
    records = [partition.records for partition in FetchResponse.decode(in_memory[9:], 12).responses[0].partitions]
    assert records == [b"r" * 70_000, b"r" * 5, None, b"small"]
    with pytest.raises(TypeError):
        join_chunks(chunks)


def test_large_records_in_memory_are_not_copied() -> None:
    records = memoryview(bytearray(100_000))
    assert any(chunk is records for chunk in encode_response(9, 1, 12, fetched(records)))


def test_decoded_records_are_a_writable_view_of_the_frame() -> None:
    request = ProduceRequest(
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"batch")])]
    )
    frame = bytearray(join_chunks(encode_request(RequestHeader(0, 9, 1, None), request)))
    records = ProduceRequest.decode(memoryview(frame)[15:], 9).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[:] = b"BATCH"
    assert b"BATCH" in frame


def test_a_field_that_a_version_lacks_is_dropped_and_has_its_default() -> None:
    response = ListOffsetsResponse(
        topics=[TopicResponse(name="t", partitions=[ListOffsetsPartitionResponse(offset=7, leader_epoch=3)])]
    )
    for version, epoch in ((1, -1), (3, -1), (4, 3), (11, 3)):
        decoded = ListOffsetsResponse.decode(join_chunks(response.encode(version)), version)
        assert decoded.topics[0].partitions[0] == ListOffsetsPartitionResponse(offset=7, leader_epoch=epoch)


def test_null_is_refused_where_a_version_does_not_know_it() -> None:
    everything = MetadataRequest(topics=None)
    assert MetadataRequest.decode(join_chunks(everything.encode(1)), 1).topics is None
    with pytest.raises(ValueError, match="array"):
        everything.encode(0)
    by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=b"x" * 16)])
    assert MetadataRequest.decode(join_chunks(by_id.encode(10)), 10) == by_id
    with pytest.raises(ValueError, match="string"):
        by_id.encode(9)


def test_a_struct_may_be_null() -> None:
    for cursor in (None, Cursor(topic_name="t", partition_index=4)):
        request = DescribeTopicPartitionsRequest(cursor=cursor)
        assert DescribeTopicPartitionsRequest.decode(join_chunks(request.encode(0)), 0).cursor == cursor


def test_a_tagged_struct_is_none_unless_it_was_sent() -> None:
    response = fetched(None)
    plain = join_chunks(response.encode(12))
    partition = response.responses[0].partitions[0]
    partition.current_leader = LeaderIdAndEpoch()
    assert join_chunks(response.encode(12)) == plain
    partition.current_leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=5)
    sent = FetchResponse.decode(join_chunks(response.encode(12)), 12).responses[0].partitions[0]
    assert (sent.current_leader, sent.snapshot_id) == (LeaderIdAndEpoch(leader_id=2, leader_epoch=5), None)


def test_an_id_of_another_length_is_never_padded() -> None:
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=b"short")])
    with pytest.raises(ValueError, match="id of 5 bytes"):
        response.encode(13)


def test_error_codes_are_assigned_as_they_are() -> None:
    response = FetchResponse(error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    assert FetchResponse.decode(join_chunks(response.encode(13)), 13).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_an_api_versions_response_never_has_tagged_fields_in_its_header() -> None:
    for version in (0, 3, 4):
        data = join_chunks(encode_response(5, 18, version, ApiVersionsResponse(error_code=35)))
        assert ApiVersionsResponse.decode(data[8:], version).error_code == 35


def test_a_request_knows_what_answers_it() -> None:
    assert ProduceRequest.response_class() is ProduceResponse
    assert ProduceRequest.FIRST_FLEXIBLE_VERSION == 9
    assert chunk_size(b"abc") == 3
