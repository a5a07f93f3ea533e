"""Elections that an operator asks for, preferred and unclean, with brokers down and back; and too few in sync."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from oncelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.wire.messages.elect_leaders import ElectLeadersRequest
from tests.conformance.golden.cluster.conversation import Conversation
from tests.conformance.golden.cluster.requests import PREFERRED, UNCLEAN, elect, fetch, list_offsets, metadata, produce
from tests.peers.clients.sweep.wire import versions


def put_first(talk: Conversation, topic: str, replicas: Sequence[int]) -> None:
    """Change the order of a partition's replicas, and with it the preferred leader."""
    partition = ReassignablePartition(partition_index=0, replicas=list(replicas))
    topics = [ReassignableTopic(name=topic, partitions=[partition])]
    talk.ask(1, AlterPartitionReassignmentsRequest(topics=topics), 0)
    talk.until_partition(topic, replicas=replicas)


def _elections(talk: Conversation) -> None:
    talk.topic("e-safe", {0: (3, 2, 1), 1: (1, 2, 3)})
    talk.topic("e-single", {0: (3,)})
    for version in versions(ElectLeadersRequest):
        _ask(talk, version)
    talk.stop(3)
    talk.until_partition("e-safe", leader=2, isr=(1, 2))
    talk.until_partition("e-single", leader=-1)
    for version in versions(ElectLeadersRequest):
        _ask(talk, version)
    talk.start(3)
    talk.until_partition("e-safe", leader=2, isr=(1, 2, 3))
    talk.until_partition("e-single", leader=3)
    for version in versions(ElectLeadersRequest):
        _ask(talk, version, kinds=(UNCLEAN,))
    _ask(talk, 2)
    talk.until_partition("e-safe", leader=3)
    talk.ask_each(metadata("e-safe", "e-single"), 12)


def _ask(talk: Conversation, version: int, kinds: Sequence[int] = (PREFERRED, UNCLEAN)) -> None:
    for kind in kinds if version >= 1 else (PREFERRED,):
        for partition in (("e-safe", 0), ("e-safe", 1), ("e-single", 0), ("e-safe", 7), ("e-nowhere", 0)):
            talk.ask_each(elect(kind, partition), version)
        talk.ask(1, elect(kind, ("e-safe", 1), ("e-single", 0), ("e-nowhere", 0)), version)
        talk.ask(2, elect(kind, ("e-safe", 1), timeout_ms=0), version)
    if version >= 1:
        talk.ask(2, elect(7, ("e-safe", 1)), version)


def _everything(talk: Conversation) -> None:
    """All partitions at once: only what was elected, or could not be, is told."""
    talk.topic("e-all", {0: (3, 2, 1), 1: (1, 2, 3)})
    talk.ask_each(elect(PREFERRED), 2)
    talk.stop(2)
    talk.ask(1, elect(UNCLEAN), 2)
    talk.start(2)
    talk.until_partition("e-all", isr=(1, 2, 3))
    talk.until_partition("e-all", 1, isr=(1, 2, 3))
    talk.until_partition("__consumer_offsets", isr=(1, 2, 3))
    talk.until_partition("__transaction_state", isr=(1, 2, 3))
    talk.ask(1, elect(PREFERRED), 2)
    talk.until_partition("__consumer_offsets", leader=2)
    talk.ask(3, elect(PREFERRED), 2)


def _unclean(talk: Conversation) -> None:
    """A partition whose leader is gone, with a replica that is behind."""
    topic_id = talk.topic("e-behind", {0: (2, 1)})
    talk.stop(2)
    talk.until_partition("e-behind", leader=1, isr=(1,))
    talk.start(2)
    talk.until_partition("e-behind", leader=1, isr=(1, 2))
    talk.ask(1, elect(PREFERRED, ("e-behind", 0)), 2)
    talk.until_partition("e-behind", leader=2)
    talk.ask_each(metadata("e-behind"), 12)
    other_id = talk.topic("e-lost", {0: (3, 2)})
    talk.stop(2)
    talk.until_partition("e-lost", leader=3, isr=(3,))
    talk.ask(3, produce("e-lost", other_id, b"only at broker 3"), 9)
    talk.stop(3)
    talk.until_partition("e-lost", leader=-1)
    talk.start(2)
    talk.until_partition("e-lost", leader=-1)
    for version in versions(ElectLeadersRequest):
        talk.ask_each(elect(PREFERRED, ("e-lost", 0)), version)
    for version in (9, 13):
        talk.ask_each(produce("e-lost", other_id), version)
    for version in (12, 17):
        talk.ask_each(fetch("e-lost", other_id), version)
    talk.ask_each(list_offsets("e-lost"), 7)
    talk.ask_each(elect(UNCLEAN, ("e-lost", 0)), 2)
    talk.until_partition("e-lost", leader=2, isr=(2,))
    talk.ask_each(metadata("e-lost", "e-behind"), 12)
    talk.ask_each(list_offsets("e-lost"), 7)
    talk.start(3)
    talk.until_partition("e-lost", leader=2, isr=(2, 3))
    talk.ask_each(metadata("e-lost", "e-behind"), 12)
    talk.ask_each(fetch("e-behind", topic_id), 17)


def _min_isr(talk: Conversation) -> None:
    """acks=all with fewer replicas in sync than min.insync.replicas."""
    topic_id = talk.topic("e-two", {0: (1, 2)}, min_insync_replicas="2")
    talk.ask(1, produce("e-two", topic_id, b"both have it"), 9)
    talk.stop(2)
    talk.until_partition("e-two", leader=1, isr=(1,))
    for version in (3, 7, 8, 9, 10, 13):
        for acks in (-1, 1):
            talk.ask_each(produce("e-two", topic_id, acks=acks), version)
    talk.ask_each(metadata("e-two"), 12)
    talk.ask_each(fetch("e-two", topic_id), 17)
    talk.ask_each(list_offsets("e-two"), 7)
    talk.start(2)
    talk.until_partition("e-two", leader=1, isr=(1, 2))
    talk.ask(1, produce("e-two", topic_id), 9)
    talk.ask(1, list_offsets("e-two"), 7)


CONVERSATIONS: Final[dict[str, Callable[[Conversation], None]]] = {
    "elections": _elections,
    "elect-all": _everything,
    "unclean-election": _unclean,
    "min-isr": _min_isr,
}
