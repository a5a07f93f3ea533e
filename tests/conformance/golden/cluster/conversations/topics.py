"""Topics whose replicas cannot be had, or are where an operator wants them; with all brokers up and with one down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from oncelog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from oncelog.wire.messages.create_topics import CreatableReplicaAssignment, CreateTopicsRequest
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.conformance.golden.cluster.conversation import Conversation
from tests.conformance.golden.cluster.requests import create, metadata
from tests.peers.clients.sweep.wire import versions

_WRONG: Final[Sequence[Sequence[Sequence[int]]]] = (
    ((9,),),
    ((1, 9),),
    ((1, 1),),
    ((),),
    ((-1,),),
    ((1, 2), (1,)),
    ((1, 2), (1, 2, 3)),
    ((1, 2, 3, 4),),
)
"""Replicas of partitions 0 and 1 that cannot be."""
_DOWN: Final[Sequence[Sequence[Sequence[int]]]] = (((3,),), ((1, 3),), ((3, 1),), ((1,), (3,)))
"""Replicas where broker 3 is down."""


def _refused(talk: Conversation) -> None:
    for version in versions(CreateTopicsRequest):
        for replicas in _WRONG:
            talk.ask_each(create("t-wrong", *replicas), version)
            talk.ask(1, create("t-wrong", *replicas, validate_only=True), version)
        for factor in (0, -2, 4, 100):
            talk.ask_each(create("t-wrong", num_partitions=1, replication_factor=factor), version)
        talk.ask(1, create("t-wrong", (1,), num_partitions=1), version)
        talk.ask(1, create("t-wrong", (1,), replication_factor=1), version)
        for indexes in ((1,), (0, 2), (0, 0), (-1,)):
            talk.ask(2, _with_indexes(indexes), version)


def _with_indexes(indexes: Sequence[int]) -> CreateTopicsRequest:
    request = create("t-wrong")
    request.topics[0].assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=[1]) for index in indexes
    ]
    return request


def _created(talk: Conversation) -> None:
    """Created at any broker, described by all."""
    for version in versions(CreateTopicsRequest):
        for broker_id in talk.running:
            replicas = (broker_id, broker_id % 3 + 1)
            for request in (
                create(f"t-{version}-{broker_id}", replicas, replicas[::-1]),
                create(f"t-{version}-{broker_id}", replicas),
                create(f"t-{version}-{broker_id}-three", num_partitions=2, replication_factor=3),
                create(f"t-{version}-{broker_id}-only", num_partitions=2, replication_factor=3, validate_only=True),
            ):
                talk.ask(broker_id, request, version)
    for broker_id in (1, 2, 3):
        name = f"t-7-{broker_id}"
        for partition in (0, 1):
            talk.until_partition(name, partition, isr=(broker_id, broker_id % 3 + 1))
        talk.ask_each(metadata(name), 12)


def _more(talk: Conversation) -> None:
    talk.topic("t-more", {0: (1, 2)})
    for version in versions(CreatePartitionsRequest):
        for count, assignments in (
            (2, [[9, 1]]),
            (2, [[1, 1]]),
            (2, [[]]),
            (2, [[1]]),
            (2, [[1, 2, 3]]),
            (2, [[1, 2], [2, 1]]),
            (3, [[1, 2]]),
            (1, None),
            (0, None),
            (-1, None),
            (1, [[1, 2]]),
        ):
            for validate_only in (True, False):
                grown = _grown("t-more", count, assignments, validate_only=validate_only)
                talk.ask(version % 3 + 1, grown, version)
        talk.ask(version % 3 + 1, _grown("t-more", 2, [[2, 3]], validate_only=True), version)
        talk.ask(1, _grown("t-nowhere", 2, None), version)
        talk.topic(f"t-more-{version}", {0: (1, 2)})
        talk.ask(version % 3 + 1, _grown(f"t-more-{version}", 3, [[2, 3], [3, 1]]), version)
        for index, replicas in enumerate(((1, 2), (2, 3), (3, 1))):
            talk.until_partition(f"t-more-{version}", index, leader=replicas[0], isr=replicas)
        talk.ask_each(metadata(f"t-more-{version}"), 12)


def _grown(
    name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool = False
) -> CreatePartitionsRequest:
    expected = assignments and [CreatePartitionsAssignment(broker_ids=list(replicas)) for replicas in assignments]
    topic = CreatePartitionsTopic(name=name, count=count, assignments=expected or None)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=10_000, validate_only=validate_only)


def _with_one_down(talk: Conversation) -> None:
    talk.topic("t-there", {0: (1, 2)})
    talk.stop(3)
    for version in (4, 5, 7):
        for replicas in _DOWN:
            talk.ask(2, create("t-down", *replicas, validate_only=True), version)
        for factor in (3, 4):
            talk.ask(1, create(f"t-many-{version}", num_partitions=1, replication_factor=factor), version)
        talk.ask(1, create(f"t-default-{version}", num_partitions=1, replication_factor=-1), version)
    for version in versions(CreatePartitionsRequest):
        for replicas in ((3, 1), (1, 3)):
            talk.ask(1, _grown("t-there", 2, [replicas], validate_only=True), version)
    talk.ask(1, create("t-two", num_partitions=3, replication_factor=2), 7)
    talk.start(3)
    talk.ask(1, create("t-back", (3, 1)), 7)
    talk.until_partition("t-back", leader=3, isr=(3, 1))


def _deleted(talk: Conversation) -> None:
    """Deleted at any broker, gone from all, also while the broker of a replica is down: it does not bring it back."""
    for broker_id in (1, 2, 3):
        name = f"t-gone-{broker_id}"
        topic_id = talk.topic(name, {0: (1, 2, 3)})
        if broker_id == 2:
            talk.stop(3)
            talk.until_partition(name, isr=(1, 2))
        state = DeleteTopicState(name=None, topic_id=topic_id) if broker_id == 1 else DeleteTopicState(name=name)
        request = DeleteTopicsRequest(topics=[state], topic_names=[name], timeout_ms=10_000)
        talk.ask(broker_id, request, 6)
        for item in talk.running:
            talk.until(item, metadata(name), 12, lambda answer: answer.topics[0].error_code, f"{name} is gone")
        talk.ask(broker_id, request, 6)
        if broker_id == 2:
            talk.start(3)
        talk.ask_each(metadata(name), 12)
        talk.topic(f"{name}-after", {0: (3, 2)})


CONVERSATIONS: Final[dict[str, Callable[[Conversation], None]]] = {
    "topics-refused": _refused,
    "topics-created": _created,
    "partitions-added": _more,
    "topics-with-one-down": _with_one_down,
    "topics-deleted": _deleted,
}
