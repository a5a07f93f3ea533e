"""Reading partitions for a Fetch: what each gives within the limits, and when a waiting Fetch has enough.

The rule: data is never read here, only found; the answer holds ranges of files. Within a request the first partition
that has anything gives at least one whole batch, whatever the limits say (KIP-74), all others keep to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, TopicId, TopicName, TopicPartition
from oncelog.core.sessions.fetch_cache import FetchPartition
from oncelog.handlers.context import Broker
from oncelog.handlers.leadership import led_log
from oncelog.storage.errors import OffsetOutOfRange
from oncelog.storage.log import PartitionLog
from oncelog.wire.messages.fetch import AbortedTransaction, EpochEndOffset, PartitionData

NO_RECORDS: Final = b""
UNKNOWN: Final = -1


class FetchReads:
    """The partitions of one request that are there and may be read, with the request's limits.

    ``max_bytes`` is of the whole answer; ``min_bytes`` is what a waiting request waits for.
    """

    __slots__ = ("_broker", "_max_bytes", "_min_bytes", "_read_committed", "partitions", "urgent")

    def __init__(
        self,
        broker: Broker,
        partitions: Sequence[tuple[TopicPartition, FetchPartition]],
        *,
        min_bytes: int,
        max_bytes: int,
        read_committed: bool,
    ) -> None:
        self._broker = broker
        self.partitions = partitions
        self._max_bytes = max_bytes
        self._min_bytes = min(min_bytes, max_bytes)
        self._read_committed = read_committed
        self.urgent = False
        """After ``read``: something is there that must be told at once (an error, a divergence, enough bytes)."""

    def read(self) -> list[tuple[FetchPartition, PartitionData]]:
        """What every partition gives now."""
        left = self._max_bytes
        minimum_one = True
        found = 0
        self.urgent = not self.partitions
        answers: list[tuple[FetchPartition, PartitionData]] = []
        for name, asked in self.partitions:
            answer, size = self._read_one(name, asked, min(asked.max_bytes, left), minimum_one)
            if size:
                minimum_one = False
                found += size
                left = max(0, left - size)
            if answer.error_code or answer.diverging_epoch is not None:
                self.urgent = True
            answers.append((asked, answer))
        if found >= self._min_bytes or (found and self.ready()):
            self.urgent = True
        return answers

    def ready(self) -> bool:
        """Whether a waiting request has enough, or something has happened that it must be told."""
        found = 0
        for name, asked in self.partitions:
            log = self._log(name, asked)
            if isinstance(log, ErrorCode):
                return True
            offset = asked.fetch_offset
            if not log.log_start_offset <= offset <= log.log_end_offset:
                return True
            end = log.last_stable_offset if self._read_committed else log.high_watermark
            if offset < end:
                found += self._size_bytes(log, asked)
                if found >= self._min_bytes:
                    return True
        return found >= self._min_bytes

    def _size_bytes(self, log: PartitionLog, asked: FetchPartition) -> int:
        """What a partition could give; as much as is waited for, when waiting would not make it more."""
        if self._min_bytes <= 1 or asked.fetch_offset < log.segments.active.base_offset:
            return self._min_bytes
        try:
            read = log.read(
                asked.fetch_offset,
                max_bytes=asked.max_bytes,
                isolation_read_committed=self._read_committed,
                minimum_one=False,
            )
        except (OffsetOutOfRange, OSError):
            return self._min_bytes
        return read.size_bytes

    def _log(self, name: TopicPartition, asked: FetchPartition) -> PartitionLog | ErrorCode:
        log = led_log(self._broker, name, max(asked.leader_epoch, UNKNOWN))
        if not isinstance(log, ErrorCode) and asked.topic_id not in (NO_TOPIC_ID, log.topic_id):
            return ErrorCode.INCONSISTENT_TOPIC_ID
        return log

    def _read_one(
        self, name: TopicPartition, asked: FetchPartition, max_bytes: int, minimum_one: bool
    ) -> tuple[PartitionData, int]:
        log = self._log(name, asked)
        if isinstance(log, ErrorCode):
            return failed(asked, log), 0
        if asked.last_fetched_epoch >= 0:
            diverged = _divergence(log, asked)
            if diverged is not None:
                return diverged, 0
        offset = asked.fetch_offset
        end = log.last_stable_offset if self._read_committed else log.high_watermark
        answer = PartitionData(
            partition_index=asked.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if self._read_committed else None,
            records=NO_RECORDS,
        )
        if offset >= end and log.log_start_offset <= offset <= log.log_end_offset:
            return answer, 0
        if max_bytes < 0:
            return failed(asked, ErrorCode.UNKNOWN_SERVER_ERROR), 0
        try:
            read = log.read(
                offset,
                max_bytes=max_bytes,
                isolation_read_committed=self._read_committed,
                minimum_one=minimum_one,
            )
        except OffsetOutOfRange:
            return failed(asked, ErrorCode.OFFSET_OUT_OF_RANGE), 0
        except OSError:
            return failed(asked, ErrorCode.KAFKA_STORAGE_ERROR), 0
        if read.size_bytes:
            answer.records = list(read.chunks)
        if read.aborted:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                for producer_id, first_offset in read.aborted
            ]
        return answer, read.size_bytes


def failed(asked: FetchPartition, error_code: ErrorCode, *, read: bool = True) -> PartitionData:
    """The answer for a partition that could not be read. ``read``: it was found and reading it failed."""
    return PartitionData(
        partition_index=asked.partition,
        error_code=error_code,
        high_watermark=UNKNOWN,
        last_stable_offset=UNKNOWN,
        log_start_offset=UNKNOWN,
        # Apache Kafka answers null where it tried to read and an empty list where it did not.
        aborted_transactions=None if read else [],
        records=NO_RECORDS,
    )


def _divergence(log: PartitionLog, asked: FetchPartition) -> PartitionData | None:
    """Where the client's log and this one part, if the last epoch the client has seen says so (KIP-595)."""
    epoch, end_offset = log.epoch_end_offset(asked.last_fetched_epoch)
    if epoch == UNKNOWN or end_offset == UNKNOWN or asked.fetch_offset < log.log_start_offset:
        return failed(asked, ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch >= asked.last_fetched_epoch and end_offset >= asked.fetch_offset:
        return None
    return PartitionData(
        partition_index=asked.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end_offset),
        aborted_transactions=None,
        records=NO_RECORDS,
    )


def topic_name(broker: Broker, topic_id: bytes) -> TopicName | None:
    """The name of the topic with this id, None when there is none."""
    return broker.image.topic_names.get(TopicId(topic_id))
