"""An answer that is read quickly is what decoding all of it gives; what is hostile comes no further than PeerError."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.admin.transactions.producers import Answered, busy_partitions
from oncelog.base.errors import PeerError
from oncelog.wire.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
PRODUCERS = st.builds(
    ProducerState,
    producer_id=st.integers(0, 2**63 - 1),
    current_txn_start_offset=st.integers(-1, 5),
    transactional_id=st.none() | st.text(max_size=3),
)
PARTITIONS = st.builds(
    PartitionResponse,
    partition_index=INT32,
    error_code=st.sampled_from([0, 0, 0, 3]),
    error_message=st.sampled_from([None, None, "", "why"]),
    active_producers=st.lists(PRODUCERS, max_size=2),
)
IDLE = st.builds(PartitionResponse, partition_index=INT32)
TOPICS = st.builds(
    TopicResponse,
    name=st.text(max_size=4) | st.just("n" * 126) | st.just("n" * 127) | st.just("ä" * 200),
    partitions=st.lists(IDLE | PARTITIONS, max_size=4) | st.lists(IDLE, min_size=126, max_size=130),
)
ANSWERS = st.builds(DescribeProducersResponse, throttle_time_ms=INT32, topics=st.lists(TOPICS, max_size=4))


def encoded(answer: DescribeProducersResponse) -> bytes:
    return b"".join(answer.encode(0))


def decoded(body: bytes) -> list[Answered]:
    """The same by the generated reader."""
    return [
        Answered(topic.name, partition.partition_index, partition.error_code, partition.active_producers)
        for topic in DescribeProducersResponse.decode(body, 0).topics
        for partition in topic.partitions
        if partition.error_code or partition.active_producers
    ]


@settings(max_examples=40, deadline=None)
@given(ANSWERS)
def test_it_is_what_decoding_all_of_it_gives(answer: DescribeProducersResponse) -> None:
    body = encoded(answer)
    assert [*busy_partitions(body)] == decoded(body)


def outcome(read: object, body: bytes) -> object:
    try:
        return read(body)  # type: ignore[operator]  # one of the two readers
    except PeerError:
        return PeerError


@settings(max_examples=60, deadline=None)
@given(ANSWERS, st.data())
def test_a_broken_answer_is_refused_as_decoding_refuses_it(
    answer: DescribeProducersResponse, data: st.DataObject
) -> None:
    body = bytearray(encoded(answer))
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(body[: data.draw(st.integers(0, len(body)))])
    for item in (bytes(body), cut, cut + b"\0"):
        assert outcome(lambda found: [*busy_partitions(found)], item) == outcome(decoded, item)
