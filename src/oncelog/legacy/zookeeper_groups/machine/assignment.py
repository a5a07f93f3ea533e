"""The range algorithm over partitions and consumer threads, computed by every consumer independently.

All consumers of a group must compute alike: for each topic, the partitions in numeric order are divided evenly among
the threads of all consumers that read it, sorted as text (``consumer-thread``, in Java's order by UTF-16 code units);
the first (partitions mod threads) threads get one more. Until all have seen the same registrations, the owner nodes
keep a partition from having two owners.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from oncelog.base.ids import TopicPartition
from oncelog.legacy.zookeeper_groups.machine.nodes import read_topic
from oncelog.legacy.zookeeper_groups.machine.subscription import Subscription, read_registration


class GroupSnapshot(NamedTuple):
    """The group and its topics as read by a consumer, with watches set before."""

    members: Mapping[str, bytes]
    """The registrations of the group by consumer id."""
    topics: Mapping[str, bytes]
    """The values of the existing topic nodes."""
    brokers: int
    """The number of registered brokers."""


def thread_name(consumer: str, thread: int) -> str:
    return f"{consumer}-{thread}"


def java_order(text: str) -> bytes:
    """A sort key equivalent to Java's string order."""
    return text.encode("utf-16-be", "surrogatepass")


def assign_partitions(
    consumer: str, subscription: Subscription, snapshot: GroupSnapshot, *, exclude_internal: bool
) -> dict[TopicPartition, str]:
    """The partitions of a consumer, in order, each with the thread that owns it."""
    others = {name: read_registration(value) for name, value in snapshot.members.items() if name != consumer}
    readers = {name: read.as_read_by(subscription) for name, read in others.items() if read is not None}
    readers[consumer] = subscription
    share: dict[TopicPartition, str] = {}
    for topic in sorted(snapshot.topics):
        own = subscription.streams_of(topic, exclude_internal=exclude_internal)
        if not own:
            continue
        threads = sorted(
            (
                thread_name(name, number)
                for name, reader in readers.items()
                for number in range(reader.streams_of(topic, exclude_internal=exclude_internal))
            ),
            key=java_order,
        )
        own_threads = {thread_name(consumer, number) for number in range(own)}
        partitions = read_topic(topic, snapshot.topics[topic])
        quota, extra = divmod(len(partitions), len(threads))
        for place, thread in enumerate(threads):
            if thread in own_threads:
                first = quota * place + min(place, extra)
                share.update(dict.fromkeys(partitions[first : first + quota + (place < extra)], thread))
    return share
