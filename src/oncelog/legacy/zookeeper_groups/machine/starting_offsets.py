"""The offsets that a consumer begins at, out of the two places where a group may keep them, and what to warn of.

Rules: without dual commit the storage alone counts. With dual commit the larger offset of both does, whichever the
storage is. That is the text of the specification; Java's consumers ignore dual commit with
``offsets.storage=zookeeper``, and begin there with what ZooKeeper has, which may be old: hence the warnings.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from oncelog.base.ids import TopicPartition


class Storage(Enum):
    """The places for offsets, by the values of ``offsets.storage``."""

    ZOOKEEPER = "zookeeper"
    KAFKA = "kafka"

    @property
    def other(self) -> Storage:
        """The other one."""
        return Storage.KAFKA if self is Storage.ZOOKEEPER else Storage.ZOOKEEPER


class Stored(NamedTuple):
    """The offsets of a group in both places, without those that it has none for."""

    zookeeper: Mapping[TopicPartition, int]
    kafka: Mapping[TopicPartition, int]

    def at(self, storage: Storage) -> Mapping[TopicPartition, int]:
        """The offsets in one of them."""
        return self.zookeeper if storage is Storage.ZOOKEEPER else self.kafka


def starts(stored: Stored, storage: Storage, dual_commit: bool) -> dict[TopicPartition, int]:
    """The offset to begin at in each partition that has one."""
    begin = dict(stored.at(storage))
    if dual_commit:
        for partition, offset in stored.at(storage.other).items():
            begin[partition] = max(offset, begin.get(partition, offset))
    return begin


def start_warnings(stored: Stored, storage: Storage, dual_commit: bool) -> list[str]:
    """Warnings about offsets that would be passed over, or that Java's consumers in the same group would."""
    here, there = stored.at(storage), stored.at(storage.other)
    ahead = {p: offset - here.get(p, 0) for p, offset in there.items() if p not in here or offset > here[p]}
    found = []
    if ahead and not dual_commit:
        missing = sum(partition not in here for partition in ahead)
        found.append(
            f"the group's offsets in {_NAMES[storage.other]} are ahead of those in {_NAMES[storage]} in "
            f"{len(ahead)} of its partitions ({missing} have none there), and are not used: with "
            f"offsets.storage={storage.value} alone records are read again, or skipped by auto.offset.reset. Set "
            "dual.commit.enabled=true to begin at the larger offset, or run `oncelog group migrate`"
        )
    if dual_commit and storage is Storage.ZOOKEEPER:
        found.append(
            "Java's consumers ignore dual.commit.enabled with offsets.storage=zookeeper: one of them in this group "
            "begins at ZooKeeper's offsets even where Kafka's are ahead. To move a group with Java consumers back to "
            "ZooKeeper, run all of it with offsets.storage=kafka and dual.commit.enabled=true first"
        )
    return found


_NAMES = {Storage.ZOOKEEPER: "ZooKeeper", Storage.KAFKA: "Kafka"}
