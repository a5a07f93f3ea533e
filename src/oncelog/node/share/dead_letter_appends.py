"""Appends a batch of dead letters to the leader of its partition: this broker, or another one by a Produce request."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode, error_code_of
from oncelog.base.ids import NO_BROKER, Offset, TopicPartition
from oncelog.base.units import SECOND_MS
from oncelog.node.brokers.broker_links import LinkPurpose
from oncelog.storage.errors import AppendRefused
from oncelog.storage.log.append import append_batch

if TYPE_CHECKING:
    from oncelog.node.brokers.broker_links import BrokerLinks
    from oncelog.node.cluster.metadata import Metadata
    from oncelog.node.kernel.deadlines import Deadlines
    from oncelog.node.logs.group_commit import GroupCommit
    from oncelog.node.replication.partitions import PartitionManager
    from oncelog.wire.messages.produce import ProduceResponse

_ACKS_ALL: Final = -1
_TIMEOUT_MS: Final = 30 * SECOND_MS

OnAppended = Callable[[ErrorCode], None]


class DeadLetterAppends:
    def __init__(
        self,
        metadata: Metadata,
        partitions: PartitionManager,
        group_commit: GroupCommit,
        links: BrokerLinks,
        deadlines: Deadlines,
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._group_commit = group_commit
        self._links = links
        self._deadlines = deadlines

    def append(self, partition: TopicPartition, batch: bytearray, on_appended: OnAppended) -> None:
        """Append as with acks=all. ``on_appended`` is called later, never before this returns."""
        image = self._metadata.image.partition(partition)
        leader_id = NO_BROKER if image is None else image.leader
        if leader_id == self._metadata.broker_id:
            error_code = self._append_here(partition, batch, on_appended)
        elif leader_id == NO_BROKER:
            error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            self._send(partition, batch, on_appended)
            return
        if error_code != ErrorCode.NONE:
            self._later(on_appended, error_code)

    def _later(self, on_appended: OnAppended, error_code: ErrorCode) -> None:
        self._deadlines.at(self._deadlines.now_ms, lambda _now_ms: on_appended(error_code))

    def _append_here(self, partition: TopicPartition, batch: bytearray, on_appended: OnAppended) -> ErrorCode:
        leader = self._partitions.leader_log(partition)
        if isinstance(leader, ErrorCode):
            return leader
        if not leader.replicas.has_enough_in_sync():
            return ErrorCode.NOT_ENOUGH_REPLICAS
        now_ms = self._deadlines.now_ms
        try:
            appended = append_batch(leader.log, batch, now_ms=now_ms, leader_epoch=leader.leader_epoch)
        except AppendRefused as refused:
            return refused.error_code
        except OSError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._partitions.appended(leader, appended.record_count, appended.size_bytes)
        self._group_commit.when_durable(
            leader.log,
            Offset(appended.last_offset + 1),
            partial(self._later, on_appended, ErrorCode.NONE),
            partial(self._later, on_appended, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        )
        return ErrorCode.NONE

    def _send(self, partition: TopicPartition, batch: bytearray, on_appended: OnAppended) -> None:
        from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

        topic = self._metadata.image.topics[partition.topic]
        data = PartitionProduceData(index=partition.partition, records=bytes(batch))
        request = ProduceRequest(
            acks=_ACKS_ALL,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[data])],
        )

        def answered(response: ProduceResponse | None) -> None:
            partitions = (
                []
                if response is None
                else [answer for result in response.responses for answer in result.partition_responses]
            )
            on_appended(ErrorCode.NETWORK_EXCEPTION if not partitions else error_code_of(partitions[0].error_code))

        self._links.request(topic.partitions[partition.partition].leader, LinkPurpose.DEAD_LETTERS, request, answered)
