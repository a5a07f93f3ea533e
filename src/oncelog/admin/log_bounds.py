"""The first and next offsets of many partitions, without those that have no leader."""

from __future__ import annotations

from oncelog.base.ids import TopicPartition
from oncelog.client.machine.requests import EARLIEST, LATEST
from oncelog.client.programs import Cluster, Program, operation
from oncelog.client.programs.log_offsets import offsets_at


@operation
def log_bounds(
    cluster: Cluster, partitions: list[TopicPartition]
) -> Program[tuple[dict[TopicPartition, int], dict[TopicPartition, int]]]:
    """The first and next offsets of partitions that exist and have a leader."""
    topics = (yield from cluster.metadata({partition.topic for partition in partitions})) if partitions else {}
    led = []
    for partition in partitions:
        topic = topics.get(partition.topic)
        info = None if topic is None else topic.partitions.get(partition.partition)
        if info is not None and info.leader >= 0:
            led.append(partition)
    if not led:
        return {}, {}
    starts = yield from offsets_at(cluster, dict.fromkeys(led, EARLIEST))
    ends = yield from offsets_at(cluster, dict.fromkeys(led, LATEST))
    return starts, ends
