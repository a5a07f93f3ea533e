"""Replicas compared on disk, after their brokers have stopped: the same bytes, whatever the segments are cut by."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple


class Replica(NamedTuple):
    """The log of a partition on one broker, from its first record to its last."""

    broker_id: int
    size_bytes: int
    digest: str


def differing_replicas(directories: Mapping[int, Path], topic: str) -> Iterator[str]:
    """One line for each partition of ``topic`` whose replicas are not the same bytes."""
    result: dict[str, list[Replica]] = defaultdict(list)
    for broker_id, directory in directories.items():
        for partition in sorted(directory.glob(f"{topic}-*")):
            result[partition.name].append(_read(broker_id, partition))
    if not result:
        yield f"no replica of {topic} is on any disk"
    for name, replicas in result.items():
        if len({replica.digest for replica in replicas}) > 1 or len(replicas) != len(directories):
            yield f"{name}: replicas differ: {replicas}"


def _read(broker_id: int, partition: Path) -> Replica:
    digest, size = hashlib.sha256(), 0
    for segment in sorted(partition.glob("*.log")):
        data = segment.read_bytes()
        digest.update(data)
        size += len(data)
    return Replica(broker_id, size, digest.hexdigest()[:12])
