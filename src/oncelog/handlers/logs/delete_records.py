"""DeleteRecords, versions 0 to 2 (KIP-107): raise a partition's log start offset to delete the records before it.

Readers see the new start once it is durable; retention deletes the segments later. Offset −1 is the high watermark. An
offset below the log start changes nothing and is no error.

The response waits for the log start of every live replica and every in-sync one, and returns the low watermark. After
``timeout_ms`` it is REQUEST_TIMED_OUT; followers still follow.

Appended records on their way to the disk may be deleted, too, since with acks=1 their producer has its response: the
request waits for these, at most ``timeout_ms``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import INTERNAL_TOPICS, Offset, TopicName, TopicPartition
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.ports import LeaderLog
from oncelog.handlers.broker.waits import Steps, UntilReadable
from oncelog.handlers.logs.log_end import MIN_WAIT_MS, until_readable
from oncelog.wire.messages import delete_records as wire

if TYPE_CHECKING:
    from oncelog.storage.log.partition_log import PartitionLog

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is beyond the log end offset, or negative and not -1",
    ErrorCode.REQUEST_TIMED_OUT: "records before the offset are appended and were not on disk in time, or (they are "
    "deleted here, and will be there) a follower that lives, or is in sync, has not deleted them in time",
    ErrorCode.POLICY_VIOLATION: "the topic's cleanup.policy does not contain delete",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic is internal",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "this broker does not lead the partition",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to delete from the topic",
    ErrorCode.KAFKA_STORAGE_ERROR: "the log could not be changed",
}

TO_HIGH_WATERMARK: Final = -1
NO_LOW_WATERMARK: Final = -1


class _Deletion(NamedTuple):
    """An answer that waits until the logs of all counted replicas begin at ``start`` or later."""

    answer: wire.DeleteRecordsPartitionResult
    partition: TopicPartition
    start: Offset

    def low_watermark(self, context: Context) -> Offset | ErrorCode:
        """The first offset that some counted replica has, or why this broker does not know it."""
        leader = context.partitions.leader_log(self.partition)
        if isinstance(leader, ErrorCode):
            return leader
        live = {broker_id for broker_id, broker in context.cluster.image.brokers.items() if not broker.fenced}
        # An in-sync replica may return and lead, with the records, before the controller takes it out of the set.
        counted = live.union(leader.replicas.successors())
        return leader.replicas.low_watermark(leader.log.log_start_offset, counted)

    def has_ended(self, context: Context) -> bool:
        low_watermark = self.low_watermark(context)
        return isinstance(low_watermark, ErrorCode) or low_watermark >= self.start

    def set_outcome(self, context: Context) -> None:
        low_watermark = self.low_watermark(context)
        if isinstance(low_watermark, ErrorCode):
            self.answer.error_code, self.answer.low_watermark = low_watermark, NO_LOW_WATERMARK
        else:
            self.answer.low_watermark = low_watermark
            if low_watermark < self.start:
                self.answer.error_code = ErrorCode.REQUEST_TIMED_OUT


class _StartRise(NamedTuple):
    answer: wire.DeleteRecordsPartitionResult
    log: PartitionLog
    start: Offset


def handle(request: wire.DeleteRecordsRequest, context: Context) -> Steps[wire.DeleteRecordsResponse]:
    """Each partition once, up to the offset that the request names last."""
    asked_ms = context.now_ms
    timeout_ms = min(request.timeout_ms, context.cluster.config.get("request.timeout.ms"))
    response, rises, late = _decide(request, context)
    if late:
        yield from until_readable(late, asked_ms + max(timeout_ms, MIN_WAIT_MS), context)
        response, rises, _ = _decide(request, context)
    if rises:
        # Durable before any reader sees it: an offset that a full disk refused must not be visible, nor count as done
        # when the request is repeated. One write, for the checkpoint is one file for all partitions.
        try:
            context.partitions.persist_log_starts({rise.log.partition: rise.start for rise in rises})
        except OSError:
            for rise in rises:
                rise.answer.error_code, rise.answer.low_watermark = ErrorCode.KAFKA_STORAGE_ERROR, NO_LOW_WATERMARK
        else:
            for rise in rises:
                rise.log.raise_log_start(rise.start)
                context.partitions.readable_changed(rise.log.partition)
    deletions = list(_replicated(response, context))
    if deletions:
        yield from _wait_for_replicas(deletions, asked_ms + timeout_ms, context)
    return response


def _replicated(response: wire.DeleteRecordsResponse, context: Context) -> Iterator[_Deletion]:
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(TopicName(topic.name), answer.partition_index)
            leader = context.partitions.leader_log(partition) if answer.error_code == ErrorCode.NONE else None
            if isinstance(leader, LeaderLog) and leader.replicas.has_followers:
                yield _Deletion(answer, partition, Offset(answer.low_watermark))


def _wait_for_replicas(deletions: list[_Deletion], deadline_ms: int, context: Context) -> Steps[None]:
    def ready(_changed: object = None) -> bool:
        return all(deletion.has_ended(context) for deletion in deletions)

    if not ready() and context.now_ms < deadline_ms:
        yield UntilReadable([deletion.partition for deletion in deletions], ready, deadline_ms, ends_with_client=False)
    for deletion in deletions:
        deletion.set_outcome(context)


def _decide(
    request: wire.DeleteRecordsRequest, context: Context
) -> tuple[wire.DeleteRecordsResponse, list[_StartRise], dict[TopicPartition, Offset]]:
    """The response if all goes well, the log starts to raise, and the ends of records to delete that are not on disk
    yet.
    """
    rises: list[_StartRise] = []
    late: dict[TopicPartition, Offset] = {}
    offsets: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        of_topic = offsets.setdefault(topic.name, {})
        for partition in topic.partitions:
            of_topic[partition.partition_index] = partition.offset
    response = wire.DeleteRecordsResponse()
    for name, of_topic in offsets.items():
        allowed = context.allows_topic(Operation.DELETE, name)
        result = wire.DeleteRecordsTopicResult(name=name)
        for index, offset in of_topic.items():
            answer = wire.DeleteRecordsPartitionResult(partition_index=index, low_watermark=NO_LOW_WATERMARK)
            outcome: LeaderLog | ErrorCode = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if allowed:
                outcome = _deletable_log(TopicPartition(TopicName(name), index), offset, context)
            if isinstance(outcome, ErrorCode):
                answer.error_code = outcome
            else:
                _raise_start(answer, outcome, offset, rises, late)
            result.partitions.append(answer)
        response.topics.append(result)
    return response, rises, late


def _raise_start(
    answer: wire.DeleteRecordsPartitionResult,
    leader: LeaderLog,
    offset: int,
    rises: list[_StartRise],
    late: dict[TopicPartition, Offset],
) -> None:
    log = leader.log
    if offset > log.high_watermark:
        late[leader.partition] = Offset(offset)
        answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        return
    if offset == TO_HIGH_WATERMARK and (end := leader.appended_end) is not None:
        late[leader.partition] = end
    start = log.high_watermark if offset == TO_HIGH_WATERMARK else Offset(offset)
    answer.low_watermark = max(start, log.log_start_offset)
    if start > log.log_start_offset:
        rises.append(_StartRise(answer, log, start))


def _deletable_log(partition: TopicPartition, offset: int, context: Context) -> LeaderLog | ErrorCode:
    leader = context.partitions.leader_log(partition)
    # An unknown partition first, even of an internal topic.
    if leader is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.topic in INTERNAL_TOPICS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if isinstance(leader, ErrorCode):
        return leader
    log = leader.log
    if not log.config.delete:
        return ErrorCode.POLICY_VIOLATION
    if offset != TO_HIGH_WATERMARK and not 0 <= offset <= log.log_end_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return leader
