"""The offsets a consumer starts at, from the two storages a group may use, and the warnings about them.

Without dual commit only the configured storage counts, with it the larger offset of both, as the specification says.
Java's consumers ignore dual commit with ``offsets.storage=zookeeper`` and start at ZooKeeper's offsets, which may be
old: hence the warnings.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from oncelog.base.ids import TopicPartition


class Storage(Enum):
    """Storages of offsets, by the values of ``offsets.storage``."""

    ZOOKEEPER = "zookeeper"
    KAFKA = "kafka"

    @property
    def other(self) -> Storage:
        return Storage.KAFKA if self is Storage.ZOOKEEPER else Storage.ZOOKEEPER


class Stored(NamedTuple):
    zookeeper: Mapping[TopicPartition, int]
    kafka: Mapping[TopicPartition, int]

    def at(self, storage: Storage) -> Mapping[TopicPartition, int]:
        return self.zookeeper if storage is Storage.ZOOKEEPER else self.kafka


def starts(stored: Stored, storage: Storage, dual_commit: bool) -> dict[TopicPartition, int]:
    begin = dict(stored.at(storage))
    if dual_commit:
        for partition, offset in stored.at(storage.other).items():
            begin[partition] = max(offset, begin.get(partition, offset))
    return begin


def start_warnings(stored: Stored, storage: Storage, dual_commit: bool) -> list[str]:
    """Warnings about offsets that are ignored here, or by Java's consumers in the same group."""
    own_offsets, other_offsets = stored.at(storage), stored.at(storage.other)
    ahead = {
        p: offset - own_offsets.get(p, 0)
        for p, offset in other_offsets.items()
        if p not in own_offsets or offset > own_offsets[p]
    }
    warnings = []
    if ahead and not dual_commit:
        missing = sum(partition not in own_offsets for partition in ahead)
        warnings.append(
            f"the group's offsets in {_NAMES[storage.other]} are ahead of those in {_NAMES[storage]} in "
            f"{len(ahead)} of its partitions ({missing} have none there), and are not used: with "
            f"offsets.storage={storage.value} alone records are read again, or skipped by auto.offset.reset. Set "
            "dual.commit.enabled=true to begin at the larger offset, or run `oncelog group migrate`"
        )
    if dual_commit and storage is Storage.ZOOKEEPER:
        warnings.append(
            "Java's consumers ignore dual.commit.enabled with offsets.storage=zookeeper: one of them in this group "
            "begins at ZooKeeper's offsets even where Kafka's are ahead. To move a group with Java consumers back to "
            "ZooKeeper, run all of it with offsets.storage=kafka and dual.commit.enabled=true first"
        )
    return warnings


_NAMES = {Storage.ZOOKEEPER: "ZooKeeper", Storage.KAFKA: "Kafka"}
