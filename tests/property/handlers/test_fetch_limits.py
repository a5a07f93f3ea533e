"""Whatever the limits and however the log is cut into segments, a client that goes on reads every record once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.handlers.fetch.handler import handle
from oncelog.records.batch import TruncatedBatch, iter_headers, read_header
from oncelog.records.record import read_records
from oncelog.storage.file_range import FileRange
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

from ...unit.handlers.log_broker import LogBroker, answered, context_of

SIZES = st.integers(0, 3000)


def sent(response: FetchResponse) -> dict[int, bytes]:
    """The bytes of every partition of the answer."""
    results: dict[int, bytes] = {}
    for topic in response.responses:
        for answer in topic.partitions:
            assert answer.error_code == 0
            chunks = answer.records if isinstance(answer.records, list) else []
            results[answer.partition_index] = b"".join(
                chunk.file.read(chunk.position, chunk.size_bytes) for chunk in chunks if isinstance(chunk, FileRange)
            )
    return results


def whole(data: bytes, offset: int) -> tuple[list[int], int]:
    """Offsets of the records from ``offset`` on in the whole batches of ``data``, and where to go on."""
    offsets: list[int] = []
    try:
        for position, header in iter_headers(data):
            records = read_records(data, position, header, 1 << 20)
            offsets += [record.offset for record in records if record.offset >= offset]
            offset = max(offset, header.next_offset)
    except TruncatedBatch:
        pass
    return offsets, offset


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 1), st.lists(st.integers(0, 300), min_size=1, max_size=4)), max_size=20),
    st.integers(400, 3000),
    SIZES,
    SIZES,
    st.integers(0, 5),
)
def test_reading_on_gives_every_record_once(
    batches: list[tuple[int, list[int]]], segment_bytes: int, max_bytes: int, partition_max_bytes: int, start: int
) -> None:
    broker = LogBroker(config={"fetch.max.bytes": "1024"})
    broker.add_topic("a", 2, internal_segment_bytes=max(segment_bytes, 1500))
    ends = [0, 0]
    for partition, sizes in batches:
        ends[partition] = broker.append("a", partition, [bytes(size) for size in sizes]).last_offset + 1
    positions = [min(start, end) for end in ends]
    expected = [list(range(position, end)) for position, end in zip(positions, ends, strict=True)]
    seen: list[list[int]] = [[], []]
    for _ in range(200):
        if positions == ends:
            break
        partitions = [
            FetchPartition(partition=i, fetch_offset=positions[i], partition_max_bytes=partition_max_bytes)
            for i in (0, 1)
        ]
        request = FetchRequest(max_bytes=max_bytes, topics=[FetchTopic(topic="a", partitions=partitions)])
        response = answered(handle(request, context_of(broker, 1, 12)))
        answers = sent(response)
        total = sum(map(len, answers.values()))
        assert total > 0, "data is there and none was sent"
        if total > min(max_bytes, 1024):
            # Only one batch, the first that was read, may exceed the limits.
            ((only,),) = [[data for data in answers.values() if data]]
            assert read_header(only).size_bytes == len(only)
        before = list(positions)
        for i in (0, 1):
            offsets, positions[i] = whole(answers[i], positions[i])
            seen[i] += offsets
        assert positions != before, "no progress"
    assert seen == expected
