"""The ends of logs that other brokers lead, by ListOffsets: what a consumer there could read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode, error_code_of
from oncelog.base.ids import BrokerId, Offset, TopicName, TopicPartition
from oncelog.node.brokers.broker_links import BrokerLinks, LinkPurpose
from oncelog.node.cluster.metadata import Metadata
from oncelog.node.kernel.tasks import Runnable, Task
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from oncelog.handlers.broker.ports import LeaderLog
    from oncelog.handlers.broker.waits import AskLogEnds

_LATEST: Final = -1
_CONSUMER: Final = -1
PARTITIONS_PER_REQUEST: Final = 1_000
"""A bound on the time that a request takes the other broker's loop."""


class LogEnds:
    """``leader_log(partition)`` is this broker's log, or an error."""

    def __init__(
        self,
        links: BrokerLinks,
        metadata: Metadata,
        runnable: Runnable,
        leader_log: Callable[[TopicPartition], LeaderLog | ErrorCode],
    ) -> None:
        self._links = links
        self._metadata = metadata
        self._runnable = runnable
        self._leader_log = leader_log

    def park(self, task: Task, wait: AskLogEnds) -> None:
        ends: dict[TopicPartition, Offset | ErrorCode] = {}
        remote: dict[BrokerId, list[TopicPartition]] = {}
        for partition in wait.partitions:
            image = self._metadata.image.partition(partition)
            if image is None:
                ends[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif image.leader == self._metadata.broker_id:
                leader = self._leader_log(partition)
                ends[partition] = leader if isinstance(leader, ErrorCode) else leader.log.high_watermark
            elif image.leader in self._metadata.image.brokers:
                remote.setdefault(image.leader, []).append(partition)
            else:
                ends[partition] = ErrorCode.LEADER_NOT_AVAILABLE
        requests = [
            (broker_id, partitions[start : start + PARTITIONS_PER_REQUEST])
            for broker_id, partitions in remote.items()
            for start in range(0, len(partitions), PARTITIONS_PER_REQUEST)
        ]
        left = len(requests)

        def answered(partitions: list[TopicPartition], response: ListOffsetsResponse | None) -> None:
            nonlocal left
            left -= 1
            ends.update(dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION))
            ends.update(_ends(response))
            if not left:
                self._runnable.wake(task, ends)

        timeout_ms = int(self._metadata.config.get("request.timeout.ms"))
        for broker_id, partitions in requests:
            message = _request(partitions, timeout_ms)
            self._links.request(broker_id, LinkPurpose.CONTROL, message, partial(answered, partitions), timeout_ms)
        if not requests:
            self._runnable.wake(task, ends)


def _request(partitions: list[TopicPartition], timeout_ms: int) -> ListOffsetsRequest:
    topics: dict[TopicName, ListOffsetsTopic] = {}
    for topic, index in partitions:
        asked = topics.setdefault(topic, ListOffsetsTopic(name=topic))
        asked.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=_LATEST))
    return ListOffsetsRequest(replica_id=_CONSUMER, topics=list(topics.values()), timeout_ms=timeout_ms)


def _ends(response: ListOffsetsResponse | None) -> Mapping[TopicPartition, Offset | ErrorCode]:
    if response is None:
        return {}
    return {
        TopicPartition(TopicName(topic.name), part.partition_index): error_code_of(part.error_code)
        if part.error_code
        else Offset(part.offset)
        for topic in response.topics
        for part in topic.partitions
    }
