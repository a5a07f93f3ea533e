"""Reassignments: what cannot be, what is under way while its target stands still, taken back, replaced, finished."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from oncelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from oncelog.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from oncelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.conformance.golden.cluster.conversation import Conversation
from tests.conformance.golden.cluster.conversations.leadership import until_followed
from tests.conformance.golden.cluster.requests import (
    PREFERRED,
    UNCLEAN,
    delete_records,
    describe_producers,
    elect,
    end_of_epoch,
    fetch,
    list_offsets,
    metadata,
    produce,
)
from tests.peers.clients.sweep.wire import versions

_IMPOSSIBLE: Final = ([], [1, 1], [1, 9], [9], [-1], [0], [1, 2, 3, 4])


def _move(
    topic: str, replicas: Sequence[int] | None, index: int = 0, **fields: bool
) -> AlterPartitionReassignmentsRequest:
    expected = ReassignablePartition(partition_index=index, replicas=None if replicas is None else list(replicas))
    return AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[expected])], timeout_ms=10_000, **fields
    )


def _list(*topics: tuple[str, Sequence[int]]) -> ListPartitionReassignmentsRequest:
    requests = [
        ListPartitionReassignmentsTopics(name=name, partition_indexes=list(indexes)) for name, indexes in topics
    ]
    return ListPartitionReassignmentsRequest(topics=requests or None, timeout_ms=10_000)


def _refused(talk: Conversation) -> None:
    talk.topic("m-still", {0: (1, 2), 1: (2, 3)})
    for version in versions(AlterPartitionReassignmentsRequest):
        for replicas in _IMPOSSIBLE:
            talk.ask_each(_move("m-still", replicas), version)
        talk.ask_each(_move("m-still", None), version)
        talk.ask_each(_move("m-still", [1, 2], 7), version)
        talk.ask_each(_move("m-nowhere", [1, 2]), version)
        talk.ask_each(_move("m-nowhere", None), version)
        talk.ask_each(_move("m-still", [1, 2]), version)
        if version >= 1:
            for replicas in ([1], [1, 2], [1, 2, 3], [2, 9], [2, 2]):
                refusing = _move("m-still", replicas, allow_replication_factor_change=False)
                talk.ask(2, refusing, version)
    talk.until_partition("m-still", replicas=(1, 2), isr=(1, 2))
    talk.ask_each(_list(), 0)
    talk.ask_each(_list(("m-still", (0, 1, 7)), ("m-nowhere", (0,))), 0)
    talk.ask_each(metadata("m-still"), 12)


def _finished(talk: Conversation) -> None:
    """Moves that nothing hinders: to another broker, of the leader, to more replicas and to fewer."""
    topic_id = talk.topic("m-move", {0: (1, 2)})
    talk.ask(1, produce("m-move", topic_id, b"first", b"second"), 9)
    for asked_of, replicas in ((1, (1, 3)), (2, (3, 1)), (3, (2, 3)), (1, (2, 3, 1)), (2, (3,)), (3, (1, 2))):
        talk.ask(asked_of, _move("m-move", replicas), 1)
        talk.until_partition("m-move", replicas=replicas, isr=replicas)
        _until_nothing_moves(talk)
        talk.ask_each(metadata("m-move"), 12)
        talk.ask_each(_list(), 0)
        talk.ask_each(list_offsets("m-move"), 7)
        talk.ask_each(fetch("m-move", topic_id), 17)
    talk.ask_each(end_of_epoch("m-move", 0), 4)


def _until_nothing_moves(talk: Conversation) -> None:
    for broker_id in talk.running:
        talk.until(broker_id, _list(), 0, lambda answer: not answer.topics, "nothing moves")


def _under_way(talk: Conversation) -> None:
    """Moves to broker 3, which stands still, so that they do not come to their end: at first unnoticed."""
    topic_id = talk.topic("m-way", {0: (1, 2), 1: (2, 1)})
    talk.ask(1, produce("m-way", topic_id, b"first", b"second"), 9)
    until_followed(talk, "m-way", topic_id, 2, 2)
    talk.freeze(3)
    for asked_of, replicas, kept in ((1, (1, 3), False), (2, (1, 3), False), (2, (3, 1), True), (2, (2, 1, 3), True)):
        talk.ask(asked_of, _move("m-way", replicas, allow_replication_factor_change=not kept), 1)
        if len(replicas) == 2:
            talk.until_partition("m-way", replicas=(*replicas, 2))
        _ask(talk, topic_id)
    talk.ask(1, _move("m-way", None), 1)
    talk.until_partition("m-way", replicas=(1, 2))
    _ask(talk, topic_id)
    talk.ask(1, _move("m-way", None), 1)
    talk.ask(1, _move("m-way", None, 1), 1)
    talk.ask(2, _move("m-way", (3, 1)), 1)
    talk.expire(3)
    talk.until_partition("m-way", replicas=(3, 1, 2))
    _ask(talk, topic_id)
    talk.thaw(3)
    talk.until_partition("m-way", replicas=(3, 1), isr=(3, 1))
    _until_nothing_moves(talk)
    talk.ask(1, elect(PREFERRED, ("m-way", 0)), 2)
    talk.until_partition("m-way", leader=3)
    _ask(talk, topic_id)


def _to_one_down(talk: Conversation) -> None:
    """A move to a broker that is down goes on when it is back."""
    talk.topic("m-down", {0: (1, 2)})
    talk.stop(3)
    talk.ask(1, _move("m-down", (1, 3)), 1)
    talk.ask(2, _list(), 0)
    talk.ask(2, _move("m-down", None), 1)
    talk.start(3)


def _ask(talk: Conversation, topic_id: bytes) -> None:
    """Everything that concerns a partition on the move."""
    talk.ask_each(_list(), 0)
    talk.ask_each(_list(("m-way", (0, 1))), 0)
    talk.ask_each(_list(("m-way", (1,))), 0)
    for version in (5, 9, 12):
        talk.ask_each(metadata("m-way"), version)
    talk.ask_each(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="m-way")]), 0)
    for kind in (PREFERRED, UNCLEAN):
        talk.ask(1, elect(kind, ("m-way", 0), ("m-way", 1)), 2)
    talk.ask_each(fetch("m-way", topic_id), 17)
    talk.ask_each(list_offsets("m-way"), 7)
    talk.ask_each(describe_producers("m-way"), 0)


def _deleted(talk: Conversation) -> None:
    """A topic on the move grows, and is deleted."""
    talk.topic("m-gone", {0: (1, 2)})
    talk.freeze(3)
    talk.ask(1, _move("m-gone", (1, 3)), 1)
    talk.expire(3)
    talk.until_partition("m-gone", replicas=(1, 3, 2))
    more = CreatePartitionsTopic(name="m-gone", count=2, assignments=None)
    talk.ask(1, CreatePartitionsRequest(topics=[more], timeout_ms=10_000, validate_only=True), 3)
    talk.ask(1, delete_records("m-gone", 0), 2)
    state = DeleteTopicState(name="m-gone")
    talk.ask(2, DeleteTopicsRequest(topics=[state], timeout_ms=10_000), 6)
    for broker_id in talk.running:
        talk.until(broker_id, metadata("m-gone"), 12, lambda answer: answer.topics[0].error_code, "is gone")
    talk.ask_each(_list(), 0)
    talk.ask(1, _move("m-gone", None), 1)
    talk.thaw(3)


def _log_dirs(talk: Conversation) -> None:
    """Directories: each broker tells the replicas that it has."""
    talk.topic("m-dirs", {0: (1, 2), 1: (3, 1)})
    requests = [DescribableLogDirTopic(topic="m-dirs", partitions=[0, 1, 7])]
    for version in versions(DescribeLogDirsRequest):
        talk.ask_each(DescribeLogDirsRequest(topics=requests), version)
        nowhere = [DescribableLogDirTopic(topic="m-nowhere", partitions=[0])]
        talk.ask_each(DescribeLogDirsRequest(topics=nowhere), version)


CONVERSATIONS: Final[dict[str, Callable[[Conversation], None]]] = {
    "moves-refused": _refused,
    "moves-finished": _finished,
    "moves-under-way": _under_way,
    "moves-to-one-down": _to_one_down,
    "moves-of-deleted": _deleted,
    "log-dirs": _log_dirs,
}
