"""Looks up offsets by time at the partition leaders: ListOffsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.client.errors import BrokerRefused, UnsupportedRequest
from oncelog.client.machine.requests import list_offsets_request
from oncelog.client.programs.cluster import Cluster
from oncelog.client.programs.operation import operation
from oncelog.client.programs.steps import Program, call, parallel

_NOT_LISTED: Final = "the leader's response does not have the partition"


class ListedOffset(NamedTuple):
    """A result of ListOffsets; offset −1 if no record is that late."""

    offset: int
    timestamp: int
    leader_epoch: int


def list_offsets(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> Program[dict[TopicPartition, ListedOffset]]:
    """The first offset at or after a timestamp in milliseconds; −1 is the latest, −2 earliest, −3 max timestamp.

    One request to each leader. Raises UnknownTopic, BrokerRefused and what ``request`` does.
    """
    results: dict[TopicPartition, ListedOffset] = {}

    def query(broker: int, partitions: list[TopicPartition]) -> Program[BrokerRefused | None]:
        link = yield from cluster.link(broker)
        message = list_offsets_request(cluster.view, timestamps, partitions, read_committed)
        version = link.versions.choose(message, old=True)
        if version == 0 and any(timestamps[partition] >= 0 for partition in partitions):
            raise UnsupportedRequest(f"{link.address} is too old to find offsets by time (Kafka 0.10.1 and later can)")
        return _add_offsets((yield from call(link, message, version)), results)

    def attempt() -> Program[None]:
        grouped = yield from cluster.by_leader(partition for partition in timestamps if partition not in results)
        for refused in (yield from parallel(query(broker, partitions) for broker, partitions in grouped.items())):
            if refused is not None:
                raise refused
        if missing := timestamps.keys() - results.keys():
            partition = min(missing)
            raise BrokerRefused(ErrorCode.UNKNOWN_SERVER_ERROR, f"offsets of {partition}", _NOT_LISTED)

    yield from cluster.retrying(attempt)
    return results


@operation
def offsets_at(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> Program[dict[TopicPartition, int]]:
    """The offsets of ``list_offsets`` alone. With ``read_committed`` the latest is the last stable offset."""
    listed = yield from list_offsets(cluster, timestamps, read_committed=read_committed)
    return {partition: listed[partition].offset for partition in timestamps}


def _add_offsets(response: Any, results: dict[TopicPartition, ListedOffset]) -> BrokerRefused | None:
    refused = None
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                refused = BrokerRefused(answer.error_code, f"offsets of {partition}")
            else:
                offset = answer.old_style_offsets[0] if answer.old_style_offsets else answer.offset
                results[partition] = ListedOffset(offset, answer.timestamp, answer.leader_epoch)
    return refused
