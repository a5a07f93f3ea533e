"""The range algorithm over partitions and consumer threads, computed by each consumer for itself.

The rule, which all consumers of a group have to compute alike: for each topic, its partitions in numeric order and the
threads of all consumers that read it, ``consumer-thread`` sorted as text (as Java sorts it, by UTF-16 code units), are
divided evenly; the first (partitions mod threads) threads get one more. What each computes is right once all have seen
the same registrations; until then the owners' nodes keep a partition from having two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from oncelog.base.ids import TopicPartition
from oncelog.legacy.zookeeper_groups.machine.nodes import read_topic
from oncelog.legacy.zookeeper_groups.machine.subscription import Subscription, read_registration


class Picture(NamedTuple):
    """The group and its topics as a consumer has read them, watches set before."""

    members: Mapping[str, bytes]
    """The registrations of the group by consumer id."""
    topics: Mapping[str, bytes]
    """The values of the topics' nodes; those that do not exist are not in it."""
    brokers: int
    """The number of registered brokers."""


def thread_name(consumer: str, thread: int) -> str:
    """The value of an owner's node."""
    return f"{consumer}-{thread}"


def java_order(text: str) -> bytes:
    """A key that sorts texts as Java compares strings."""
    return text.encode("utf-16-be", "surrogatepass")


def share_of(
    consumer: str, subscription: Subscription, picture: Picture, *, exclude_internal: bool
) -> dict[TopicPartition, str]:
    """The partitions for a consumer, each with the thread that owns it, in order."""
    others = {name: read_registration(value) for name, value in picture.members.items() if name != consumer}
    readers = {name: read.as_read_by(subscription) for name, read in others.items() if read is not None}
    readers[consumer] = subscription
    share: dict[TopicPartition, str] = {}
    for topic in sorted(picture.topics):
        own = subscription.streams_of(topic, exclude_internal=exclude_internal)
        if not own:
            continue
        threads = sorted(
            (
                thread_name(name, number)
                for name, one in readers.items()
                for number in range(one.streams_of(topic, exclude_internal=exclude_internal))
            ),
            key=java_order,
        )
        mine = {thread_name(consumer, number) for number in range(own)}
        partitions = read_topic(topic, picture.topics[topic])
        each, extra = divmod(len(partitions), len(threads))
        for place, thread in enumerate(threads):
            if thread in mine:
                first = each * place + min(place, extra)
                share.update(dict.fromkeys(partitions[first : first + each + (place < extra)], thread))
    return share
