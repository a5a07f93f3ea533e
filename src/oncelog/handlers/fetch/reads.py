"""Reads partitions for a Fetch within its limits, and tells when a waiting Fetch has enough.

Data is located, never read: the response holds ranges of files. The first partition with data returns at least one
whole batch, whatever the limits say (KIP-74). Others whose first batch does not fit return nothing, leaving the bytes
to later ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, BrokerId, Offset, TopicPartition
from oncelog.base.units import MIB
from oncelog.core.replicas.follower import EpochEnd, diverges
from oncelog.core.replicas.selector import preferred_read_replica
from oncelog.core.sessions.fetch_cache import FetchPartition
from oncelog.handlers.broker.ports import FollowerLog, LeaderLog
from oncelog.handlers.broker.time_slices import run_in_slices
from oncelog.handlers.broker.waits import Steps
from oncelog.handlers.fetch.request import NO_RECORDS, UNKNOWN, FetchParams, Replica, failed
from oncelog.storage.errors import OffsetOutOfRange
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.storage.log.read import read_batches
from oncelog.wire.messages.fetch import AbortedTransaction, EpochEndOffset, PartitionData

if TYPE_CHECKING:
    from oncelog.handlers.broker.context import Context
    from oncelog.handlers.fetch.request import SortedPartitions
    from oncelog.storage.log.read import Read

# Ids that are left out only cost their names after a failover.
MAX_ID_BYTES_PER_RESPONSE: Final = MIB
"""Bytes of transactional ids in a response to a replica."""


class FetchReads:
    """The readable partitions of one request, read with its parameters.

    A replica reads up to the log end offset; each read acknowledges what it has, and returns the owners of open
    transactions that begin in the records. Consumers are directed to a follower in their rack (KIP-392).
    """

    __slots__ = (
        "_appended",
        "_context",
        "_found_bytes",
        "_ids_left",
        "_left",
        "_params",
        "_partitions",
        "_replica",
        "_sizes",
        "_total",
        "_urgent",
        "answers",
        "caught_up",
        "partitions",
        "refused",
    )

    def __init__(self, context: Context, partitions: SortedPartitions, params: FetchParams) -> None:
        self._context = context
        self._partitions = context.partitions
        self.partitions = partitions.readable
        self.refused = partitions.refused
        """The answers for partitions that may not be read."""
        self._params = params
        self._replica = params.replica
        self._sizes: dict[TopicPartition, tuple[FetchPartition, int]] | None = None
        """Bytes that each partition could return at its last change, while the request waits."""
        self._total = 0
        self._appended: dict[TopicPartition, Offset] = {}
        """Log end offsets of partitions with nothing to return but appended records on their way to the disk."""

    def _begin(self) -> None:
        self.answers: list[tuple[FetchPartition, PartitionData]] = []
        self.caught_up: list[FetchPartition] = []
        """Partitions whose replica is in sync and has everything."""
        self._left = self._params.max_bytes
        self._found_bytes = 0
        self._ids_left = MAX_ID_BYTES_PER_RESPONSE
        self._appended.clear()
        self._urgent = not self.partitions

    def read_all(self) -> Steps[None]:
        self._begin()
        yield from run_in_slices(self.partitions, self._read, self._partitions)

    def _read(self, partitions: Iterable[tuple[TopicPartition, FetchPartition]]) -> None:
        for partition, fetch in partitions:
            answer, size = self._read_one(partition, fetch, min(fetch.max_bytes, self._left), not self._found_bytes)
            if answer is None:
                continue
            self._found_bytes += size
            self._left = max(0, self._left - size)
            is_news = self._replica is not None and _is_news(fetch, answer.high_watermark, answer.log_start_offset)
            is_told = answer.diverging_epoch is not None or answer.preferred_read_replica != UNKNOWN
            if answer.error_code or is_told or is_news:
                self._urgent = True
            self.answers.append((fetch, answer))

    def urgent(self) -> bool:
        """True if the response is due now: it has an error, a divergence, or enough bytes."""
        return self._urgent or self._found_bytes >= self._params.min_bytes or (self._found_bytes > 0 and self.ready())

    def has_news(self) -> bool:
        return self._found_bytes > 0 or (self._urgent and bool(self.partitions))

    def appended_ends(self) -> dict[TopicPartition, Offset]:
        """The log end offsets of partitions whose appended records are on their way to the disk; empty if the reads
        returned a record or an error.
        """
        return {} if self._found_bytes or self._urgent else dict(self._appended)

    def ready(self, changed: Iterable[TopicPartition] | None = None) -> bool:
        """True if a waiting request has enough bytes, or news that cannot wait. ``changed``: the partitions that have
        changed since the last call."""
        sizes = self._sizes
        if sizes is None or changed is None:
            sizes = self._sizes = {partition: (fetch, 0) for partition, fetch in self.partitions}
            self._total = 0
            changed = sizes
        for partition in changed:
            fetch, before = sizes[partition]
            size = self.available_bytes(partition, fetch)
            if size is None:
                return True
            sizes[partition] = fetch, size
            self._total += size - before
            if self._total >= self._params.min_bytes:
                return True
        return self._total >= self._params.min_bytes

    def available_bytes(self, partition: TopicPartition, fetch: FetchPartition) -> int | None:
        """Bytes that a partition could return; None if it has news other than records."""
        source = self._source(partition, fetch)
        if isinstance(source, ErrorCode):
            return None
        log = source.log
        offset = fetch.fetch_offset
        # An offset outside the log is an error, or a divergence.
        if not log.log_start_offset <= offset <= log.log_end_offset:
            return None
        if self._replica is not None and _is_news(fetch, log.high_watermark, log.log_start_offset):
            return None
        if offset >= self._end(log) or self._must_wait(partition, source):
            return 0
        return self._size_bytes(log, fetch)

    def _must_wait(self, partition: TopicPartition, source: LeaderLog | FollowerLog) -> bool:
        """True for a throttled replica that is not in sync."""
        # An in-sync replica is never throttled: produce requests wait for it.
        if self._replica is None or _is_in_sync(source, self._replica.broker_id):
            return False
        return self._context.cluster.leader_throttle.holds_back(partition, self._context.now_ms)

    def _size_bytes(self, log: PartitionLog, fetch: FetchPartition) -> int:
        """Bytes that a partition could return; ``min_bytes`` if waiting adds none."""
        # A read ends with its segment, and an older segment never grows.
        if self._params.min_bytes <= 1 or fetch.fetch_offset < log.segments.active.base_offset:
            return self._params.min_bytes
        try:
            return self._find(log, fetch.fetch_offset, fetch.max_bytes, minimum_one=False).size_bytes
        except (OffsetOutOfRange, OSError):
            return self._params.min_bytes

    def _find(self, log: PartitionLog, offset: int, max_bytes: int, *, minimum_one: bool) -> Read:
        """Raises OffsetOutOfRange, OSError."""
        return read_batches(
            log,
            offset,
            max_bytes=max_bytes,
            isolation_read_committed=self._params.read_committed,
            minimum_one=minimum_one,
            up_to_log_end=self._replica is not None,
        )

    def _source(self, partition: TopicPartition, fetch: FetchPartition) -> LeaderLog | FollowerLog | ErrorCode:
        epoch = max(fetch.leader_epoch, UNKNOWN)
        source: LeaderLog | FollowerLog | ErrorCode = self._partitions.leader_log(partition, epoch)
        if source is ErrorCode.NOT_LEADER_OR_FOLLOWER and self._params.reads_from_followers:
            source = self._partitions.follower_log(partition, epoch)
        if isinstance(source, ErrorCode):
            return source
        if fetch.topic_id not in (NO_TOPIC_ID, source.log.topic_id):
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if self._replica is not None and not _is_replica(source, self._replica.broker_id):
            # A broker that knows the epoch is about to be a replica: the news may have reached it before the leader.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if epoch == UNKNOWN else ErrorCode.UNKNOWN_LEADER_EPOCH
        return source

    def _end(self, log: PartitionLog) -> Offset:
        if self._replica is not None:
            return log.log_end_offset
        return log.last_stable_offset if self._params.read_committed else log.high_watermark

    def _read_one(
        self, partition: TopicPartition, fetch: FetchPartition, max_bytes: int, minimum_one: bool
    ) -> tuple[PartitionData | None, int]:
        """The answer for one partition and its bytes; None for a follower that has it all."""
        source = self._source(partition, fetch)
        if isinstance(source, ErrorCode):
            return failed(fetch, source), 0
        log = source.log
        preferred = self._preferred_replica(source, Offset(fetch.fetch_offset))
        if preferred is not None:
            return _redirect(preferred, log, fetch), 0
        offset = fetch.fetch_offset
        is_within = log.log_start_offset <= offset <= log.log_end_offset
        if fetch.last_fetched_epoch >= 0 and not (is_within and fetch.last_fetched_epoch == log.leader_epoch):
            diverged = _divergence(source, fetch)
            if diverged is not None:
                return diverged, 0
        if self._replica is not None and is_within:
            self._record_progress(source, self._replica, fetch)
            if offset >= log.log_end_offset and self._has_received_all(partition, source, fetch):
                return None, 0
        end = self._end(log)
        answer = _without_records(log, fetch)
        if self._params.read_committed:
            answer.aborted_transactions = []
        if self._replica is not None and partition in log.transactions.partitions:
            self._add_ids(partition, log, Offset(offset), answer)
        if offset >= end and is_within:
            if source.appended_end is not None and log.log_end_offset > offset:
                self._appended[partition] = log.log_end_offset
            if self._replica is not None and _is_in_sync(source, self._replica.broker_id):
                self.caught_up.append(fetch)
            return answer, 0
        if self._must_wait(partition, source):
            return answer, 0
        if max_bytes < 0:
            return failed(fetch, ErrorCode.UNKNOWN_SERVER_ERROR), 0
        try:
            read = self._find(log, offset, max_bytes, minimum_one=minimum_one)
        except OffsetOutOfRange:
            return failed(fetch, ErrorCode.OFFSET_OUT_OF_RANGE), 0
        except OSError:
            return failed(fetch, ErrorCode.KAFKA_STORAGE_ERROR), 0
        if read.first_batch_cut:
            answer.aborted_transactions = None
            return answer, 0
        if read.size_bytes:
            answer.records = list(read.chunks)
        if read.aborted:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                for producer_id, first_offset in read.aborted
            ]
        return answer, read.size_bytes

    def _preferred_replica(self, source: LeaderLog | FollowerLog, offset: Offset) -> BrokerId | None:
        """The follower that a consumer should read from instead; None: it reads here."""
        racks = self._params.racks
        if racks is None or not isinstance(source, LeaderLog):
            return None
        followers = source.replicas.read_replicas(offset, self._context.now_ms)
        return preferred_read_replica(self._params.rack_id, self._context.cluster.broker_id, followers, racks)

    def _record_progress(self, source: LeaderLog | FollowerLog, replica: Replica, fetch: FetchPartition) -> None:
        if isinstance(source, LeaderLog):
            start, offset = Offset(fetch.log_start_offset), Offset(fetch.fetch_offset)
            self._partitions.replica_fetched(source, replica.broker_id, replica.broker_epoch, offset, start)

    def _has_received_all(
        self, partition: TopicPartition, source: LeaderLog | FollowerLog, fetch: FetchPartition
    ) -> bool:
        """True if the session has returned everything to a follower that has all records."""
        log = source.log
        if fetch.sent_high_watermark != log.high_watermark or fetch.sent_log_start_offset != log.log_start_offset:
            return False
        if partition in log.transactions.partitions:
            return False
        if self._replica is not None and _is_in_sync(source, self._replica.broker_id):
            self.caught_up.append(fetch)
        return True

    def _add_ids(self, partition: TopicPartition, log: PartitionLog, offset: Offset, answer: PartitionData) -> None:
        since = 0 if self._params.replica_has_no_session else offset
        answer.transactional_ids = log.transactions.encode_since(partition, since, self._ids_left)
        self._ids_left -= len(answer.transactional_ids)


def _is_replica(source: LeaderLog | FollowerLog, broker_id: BrokerId) -> bool:
    return isinstance(source, LeaderLog) and source.replicas.follower(broker_id) is not None


def _is_in_sync(source: LeaderLog | FollowerLog, broker_id: BrokerId) -> bool:
    return isinstance(source, LeaderLog) and broker_id in source.replicas.in_sync


def _without_records(log: PartitionLog, fetch: FetchPartition) -> PartitionData:
    return PartitionData(
        partition_index=fetch.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=None,
        records=NO_RECORDS,
    )


def _redirect(preferred: BrokerId, log: PartitionLog, fetch: FetchPartition) -> PartitionData:
    answer = _without_records(log, fetch)
    answer.preferred_read_replica = preferred
    return answer


def _is_news(fetch: FetchPartition, high_watermark: int, log_start_offset: int) -> bool:
    return fetch.sent_high_watermark != high_watermark or -1 < fetch.log_start_offset < log_start_offset


def _divergence(source: LeaderLog | FollowerLog, fetch: FetchPartition) -> PartitionData | None:
    """The answer with the offset at which the client's log diverges from this one; None if it does not (KIP-595)."""
    log = source.log
    epoch, end_offset = log.epoch_end_offset(fetch.last_fetched_epoch, source.leader_epoch)
    if epoch == UNKNOWN or end_offset == UNKNOWN or fetch.fetch_offset < log.log_start_offset:
        return failed(fetch, ErrorCode.OFFSET_OUT_OF_RANGE)
    if not diverges(EpochEnd(epoch, end_offset), fetch.fetch_offset, fetch.last_fetched_epoch):
        return None
    answer = _without_records(log, fetch)
    answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return answer
