"""Compares the control offsets that Kafka Connect's Iceberg sink recorded in a table with its control topic.

A sink takes a file from the control topic only at or after the recorded offset. If the topic was created again, new
files are skipped until it has grown past that offset (apache/iceberg #15293); if retention passed the recorded offset,
files announced meanwhile were never registered (#17551).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.spark.table_audit.model import Commit, Finding

if TYPE_CHECKING:
    from oncelog.client.blocking import Client


def sink_names(subject: str, topics: Collection[str]) -> tuple[str, str] | None:
    """The control topic and group of an entry ``TOPIC.GROUP``; both may have dots. None if no topic fits."""
    parts = subject.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        topic = ".".join(parts[:cut])
        if topic in topics:
            return topic, ".".join(parts[cut:])
    return None


def control_findings(client: Client, commit: Commit, subject: str) -> Iterator[Finding]:
    """``commit`` is the newest with offsets of ``subject``. Raises ClientError."""
    from oncelog.admin.groups import log_bounds

    names = sink_names(subject, {str(name) for name in client.all_topics(0)})
    if names is None:
        yield Finding(
            "control-topic",
            f"the cluster has no control topic of {subject}; it has been deleted, or is another cluster's",
            commit.name,
            commit.time_ms,
        )
        return
    topic, group = names
    recorded = commit.control[subject]
    starts, ends = log_bounds(client, [TopicPartition(TopicName(topic), number) for number in sorted(recorded)])
    coordinator = _committed(client, f"{group}-coord")
    for number, offset in sorted(recorded.items()):
        at = TopicPartition(TopicName(topic), number)
        start, end = starts.get(at, 0), ends.get(at, 0)
        place = (commit.name, commit.time_ms, topic, number)
        if end < offset:
            yield Finding(
                "control-topic",
                f"snapshot {commit.name} is at control offset {offset} of {at}, which ends at {end}: it was created "
                "again, and the sink skips every file announced before that offset",
                *place,
            )
        elif start > offset:
            yield Finding(
                "control-topic",
                f"snapshot {commit.name} is at control offset {offset} of {at}, which begins at {start}: files "
                "announced between were never registered",
                *place,
            )
        elif (position := coordinator.get(at)) is not None and position < start:
            yield Finding(
                "control-topic",
                f"group {group}-coord is at {position} of {at}, which begins at {start}: a stale coordinator moved it "
                "back, and the next one begins by its auto.offset.reset",
                *place,
            )


def source_offsets(client: Client, subject: str) -> Mapping[TopicPartition, int] | None:
    """The offsets that the sink's tasks have committed; None while they run. Raises ClientError."""
    # Tasks commit their offsets before the coordinator registers their files.
    from oncelog.admin.group_descriptions import describe_group

    names = sink_names(subject, {str(name) for name in client.all_topics(0)})
    offsets = {} if names is None else _committed(client, names[1])
    return None if names is not None and offsets and describe_group(client, names[1]).members else offsets


def _committed(client: Client, group: str) -> dict[TopicPartition, int]:
    from oncelog.client.programs.group import committed_offsets

    return {partition: committed.offset for partition, committed in committed_offsets(client, group).items()}
