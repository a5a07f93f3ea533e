"""The position of a fetch after each answer: whole batches, retries, refusals, and answers that come too late."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode, PeerError
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.machine.metadata import ClusterView
from oncelog.client.machine.positions import FetchSettings, Positions
from oncelog.client.machine.whole_batches import whole_batches
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.wire.messages.fetch import FetchableTopicResponse, FetchResponse, LeaderIdAndEpoch, PartitionData
from oncelog.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC = TopicName("t")
ID = bytes(15) + b"\x01"
A, B = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


def view(leader: int = 1, epoch: int = 3, topic_id: bytes = ID) -> ClusterView:
    cluster = ClusterView()
    cluster.apply(metadata(leader, epoch, topic_id), 0)
    return cluster


def metadata(leader: int = 1, epoch: int = 3, topic_id: bytes = ID) -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch) for index in (0, 1)
    ]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=number, host="h", port=number) for number in (1, 2)],
        topics=[MetadataResponseTopic(name=TOPIC, topic_id=topic_id, partitions=partitions)],
    )


def batch(first: int, count: int) -> bytes:
    return bytes(build_batch([Record(-1, 0, None, b"v")] * count, base_offset=first))


def answer(partition: TopicPartition, records: bytes = b"", error_code: int = 0, **more: object) -> FetchResponse:
    data = PartitionData(
        partition_index=partition.partition,
        records=records,
        error_code=error_code,
        high_watermark=100,
        **more,  # type: ignore[arg-type]  # fields by name
    )
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=ID, partitions=[data])])


def started(until: dict[TopicPartition, int] | None = None) -> Positions:
    positions = Positions(view(), FetchSettings())
    positions.assign({A: 5, B: 0}, until)
    return positions


def test_a_request_names_each_partition_with_its_position_and_leader_epoch() -> None:
    message, requests, at_most = started().request([A, B])
    assert requests == {A: 5, B: 0}
    assert at_most is None
    (topic,) = message.topics
    assert (topic.topic, topic.topic_id) == (TOPIC, ID)
    assert [(p.fetch_offset, p.current_leader_epoch) for p in topic.partitions] == [(5, 3), (0, 3)]


def test_topics_without_ids_are_asked_for_by_name() -> None:
    positions = Positions(view(topic_id=bytes(16)), FetchSettings())
    positions.assign({A: 0})
    assert positions.request([A])[2] == 12


def test_a_position_moves_by_whole_batches_and_the_torn_one_is_cut_off() -> None:
    positions = started()
    _, requests, _ = positions.request([A])
    whole = batch(4, 3) + batch(7, 2)
    (fetched,) = positions.answered(requests, answer(A, whole + batch(9, 1)[:-1]), 0)
    assert (fetched.position, fetched.next_offset, bytes(fetched.records)) == (5, 9, whole)
    assert positions.of(A) == 9


def test_a_partition_that_got_something_is_named_last_in_the_next_request() -> None:
    positions = started()
    _, requests, _ = positions.request([A])
    positions.answered(requests, answer(A, batch(5, 1)), 0)
    assert positions.leaders(0) == {1: [B, A]}


def test_a_partition_is_in_one_request_at_a_time() -> None:
    positions = started()
    positions.request([A])
    assert positions.leaders(0) == {1: [B]}


def test_a_partition_is_done_when_it_reaches_its_end() -> None:
    positions = started(until={A: 6, B: 0})
    assert positions.leaders(0) == {1: [A]}
    _, requests, _ = positions.request([A])
    positions.answered(requests, answer(A, batch(5, 4)), 0)
    assert len(positions) == 0


def test_a_retriable_error_keeps_the_position_and_asks_for_metadata() -> None:
    cluster = view()
    positions = Positions(cluster, FetchSettings())
    positions.assign({A: 5})
    _, requests, _ = positions.request([A])
    assert positions.answered(requests, answer(A, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER), 1000) == []
    assert cluster.age_ms(TOPIC, 1000) is None
    assert positions.leaders(1000) == {}
    assert positions.leaders(3000) == {1: [A]}
    assert positions.of(A) == 5


def test_a_newer_leader_named_in_the_answer_is_asked_at_once() -> None:
    positions = started()
    _, requests, _ = positions.request([A])
    hint = LeaderIdAndEpoch(leader_id=2, leader_epoch=4)
    refusal = answer(A, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=hint)
    assert positions.answered(requests, refusal, 1000) == []
    assert positions.leaders(1000) == {2: [A], 1: [B]}


def test_a_final_error_is_handed_on_and_the_partition_left_alone() -> None:
    positions = started()
    _, requests, _ = positions.request([A])
    (fetched,) = positions.answered(requests, answer(A, error_code=ErrorCode.OFFSET_OUT_OF_RANGE), 0)
    assert (fetched.error_code, fetched.position) == (ErrorCode.OFFSET_OUT_OF_RANGE, 5)
    assert positions.of(A) is None


def test_an_answer_for_a_position_that_was_changed_meanwhile_is_dropped() -> None:
    positions = started()
    _, requests, _ = positions.request([A])
    positions.assign({A: 50})
    assert positions.answered(requests, answer(A, batch(5, 1)), 0) == []
    assert positions.of(A) == 50


def test_an_answer_for_what_was_not_asked_is_refused() -> None:
    positions = started()
    _, requests, _ = positions.request([A])
    with pytest.raises(PeerError):
        positions.answered(requests, answer(B, batch(0, 1)), 0)


def test_an_answer_is_understood_by_the_id_that_was_asked_for_although_the_topic_is_another_one_now() -> None:
    cluster = view()
    positions = Positions(cluster, FetchSettings())
    positions.assign({A: 5, B: 0})
    _, requests, _ = positions.request([A])
    cluster.apply(metadata(topic_id=bytes(15) + b"\x02"), 0)
    assert positions.answered(requests, answer(A, error_code=ErrorCode.UNKNOWN_TOPIC_ID), 0) == []
    assert positions.of(A) == 5


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(batch(2, 1), id="ends before the position asked"),
        pytest.param(batch(9, 2) + batch(9, 2), id="offsets that do not rise"),
        pytest.param(batch(5, 1)[:8] + bytes(4) + batch(5, 1)[12:], id="no length"),
        pytest.param(batch(5, 1)[:16] + b"\x01" + batch(5, 1)[17:], id="an older format"),
        pytest.param(bytes(8) + b"\x00\x00\x00\x0e" + bytes(14), id="a message set of format 0, smaller than a header"),
    ],
)
def test_batches_that_cannot_be_are_refused(records: bytes) -> None:
    with pytest.raises(PeerError):
        whole_batches(memoryview(records), 5)


def test_an_older_leader_epoch_does_not_replace_a_newer_one_unless_the_topic_is_new() -> None:
    cluster = view(leader=2, epoch=7)
    cluster.apply(metadata(leader=1, epoch=6), 1)
    assert cluster.leader(A) == 2
    cluster.apply(metadata(leader=1, epoch=0, topic_id=bytes(15) + b"\x02"), 2)
    assert cluster.leader(A) == 1
