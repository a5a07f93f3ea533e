"""Reading partitions for a Fetch: what each gives within the limits, and when a waiting Fetch has enough.

The rule: data is never read here, only found; the answer holds ranges of files. Within a request the first partition
that has anything gives at least one whole batch, whatever the limits say (KIP-74). All others keep to them, and give
nothing where not even their first batch fits: what they leave is there for the partitions after them.
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

MAX_ID_BYTES_PER_RESPONSE: Final = MIB
"""Bytes of transactional ids in an answer to a replica; leaving some out costs names after a failover, no more."""


class FetchReads:
    """The partitions of one request that are there and may be read, with the request's parameters.

    A replica reads up to the log end offset, and with each read it says what it has. It is told whose the open
    transactions are that begin in what it reads. Consumers are sent to a follower in their rack (KIP-392).
    """

    __slots__ = (
        "_appended",
        "_context",
        "_found",
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

    def __init__(self, context: Context, wanted: SortedPartitions, params: FetchParams) -> None:
        self._context = context
        self._partitions = context.partitions
        self.partitions = wanted.readable
        self.refused = wanted.refused
        """The answers for partitions that may not be read."""
        self._params = params
        self._replica = params.replica
        self._sizes: dict[TopicPartition, tuple[FetchPartition, int]] | None = None
        """Bytes that each partition could give when it changed last, while the request waits."""
        self._total = 0
        self._appended: dict[TopicPartition, Offset] = {}
        """Log end offsets of partitions that had nothing to give, but appended records on their way to the disk."""

    def _begin(self) -> None:
        self.answers: list[tuple[FetchPartition, PartitionData]] = []
        self.caught_up: list[FetchPartition] = []
        """Partitions of which the replica is in sync and has all there is."""
        self._left = self._params.max_bytes
        self._found = 0
        self._ids_left = MAX_ID_BYTES_PER_RESPONSE
        self._appended.clear()
        self._urgent = not self.partitions

    def read_all(self) -> Steps[None]:
        """Read all partitions, anew if they were read before."""
        self._begin()
        yield from run_in_slices(self.partitions, self._read, self._partitions)

    def _read(self, partitions: Iterable[tuple[TopicPartition, FetchPartition]]) -> None:
        for name, asked in partitions:
            answer, size = self._read_one(name, asked, min(asked.max_bytes, self._left), not self._found)
            if answer is None:
                continue
            self._found += size
            self._left = max(0, self._left - size)
            is_news = self._replica is not None and _is_news(asked, answer.high_watermark, answer.log_start_offset)
            is_told = answer.diverging_epoch is not None or answer.preferred_read_replica != UNKNOWN
            if answer.error_code or is_told or is_news:
                self._urgent = True
            self.answers.append((asked, answer))

    def urgent(self) -> bool:
        """True if something was read that must be told at once: an error, a divergence, enough bytes."""
        return self._urgent or self._found >= self._params.min_bytes or (self._found > 0 and self.ready())

    def has_news(self) -> bool:
        """True if something was read that a follower is told at once."""
        return self._found > 0 or (self._urgent and bool(self.partitions))

    def appended_ends(self) -> dict[TopicPartition, Offset]:
        """The log end offsets of partitions whose appended records are on their way to the disk; empty where something
        was read that is worth an answer, a record or an error."""
        return {} if self._found or self._urgent else dict(self._appended)

    def ready(self, changed: Iterable[TopicPartition] | None = None) -> bool:
        """True if a waiting request has enough, or something has happened that it must be told. ``changed``: only these
        of its partitions have changed since it was asked last."""
        sizes = self._sizes
        if sizes is None or changed is None:
            sizes = self._sizes = {name: (asked, 0) for name, asked in self.partitions}
            self._total = 0
            changed = sizes
        for name in changed:
            asked, before = sizes[name]
            size = self.available_bytes(name, asked)
            if size is None:
                return True
            sizes[name] = asked, size
            self._total += size - before
            if self._total >= self._params.min_bytes:
                return True
        return self._total >= self._params.min_bytes

    def available_bytes(self, name: TopicPartition, asked: FetchPartition) -> int | None:
        """Bytes that a partition could give, None where something else is to be told of it."""
        source = self._source(name, asked)
        if isinstance(source, ErrorCode):
            return None
        log = source.log
        offset = asked.fetch_offset
        if not log.log_start_offset <= offset <= log.log_end_offset:
            return None
        if self._replica is not None and _is_news(asked, log.high_watermark, log.log_start_offset):
            return None
        if offset >= self._end(log) or self._must_wait(name, source):
            return 0
        return self._size_bytes(log, asked)

    def _must_wait(self, name: TopicPartition, source: LeaderLog | FollowerLog) -> bool:
        """True for a throttled replica, unless it is in sync: what is produced may wait for that one."""
        if self._replica is None or _is_in_sync(source, self._replica.broker_id):
            return False
        return self._context.cluster.leader_throttle.holds_back(name, self._context.now_ms)

    def _size_bytes(self, log: PartitionLog, asked: FetchPartition) -> int:
        """The bytes a partition could give; as much as is waited for, when waiting would not make it more."""
        if self._params.min_bytes <= 1 or asked.fetch_offset < log.segments.active.base_offset:
            return self._params.min_bytes
        try:
            return self._find(log, asked.fetch_offset, asked.max_bytes, minimum_one=False).size_bytes
        except (OffsetOutOfRange, OSError):
            return self._params.min_bytes

    def _find(self, log: PartitionLog, offset: int, max_bytes: int, *, minimum_one: bool) -> Read:
        """The ranges of the log from ``offset`` on that this request may see. Raises OffsetOutOfRange, OSError."""
        return read_batches(
            log,
            offset,
            max_bytes=max_bytes,
            isolation_read_committed=self._params.read_committed,
            minimum_one=minimum_one,
            up_to_log_end=self._replica is not None,
        )

    def _source(self, name: TopicPartition, asked: FetchPartition) -> LeaderLog | FollowerLog | ErrorCode:
        """The log to read from: the one that is led here, for consumers that know of it also one that is copied."""
        epoch = max(asked.leader_epoch, UNKNOWN)
        source: LeaderLog | FollowerLog | ErrorCode = self._partitions.leader_log(name, epoch)
        if source is ErrorCode.NOT_LEADER_OR_FOLLOWER and self._params.reads_from_followers:
            source = self._partitions.follower_log(name, epoch)
        if isinstance(source, ErrorCode):
            return source
        if asked.topic_id not in (NO_TOPIC_ID, source.log.topic_id):
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if self._replica is not None and not _is_replica(source, self._replica.broker_id):
            # One that knows the epoch is about to be a replica: it may have heard of that before the leader.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if epoch == UNKNOWN else ErrorCode.UNKNOWN_LEADER_EPOCH
        return source

    def _end(self, log: PartitionLog) -> Offset:
        if self._replica is not None:
            return log.log_end_offset
        return log.last_stable_offset if self._params.read_committed else log.high_watermark

    def _read_one(
        self, name: TopicPartition, asked: FetchPartition, max_bytes: int, minimum_one: bool
    ) -> tuple[PartitionData | None, int]:
        """The answer for one partition and its bytes; None for a follower that was told all of it before."""
        source = self._source(name, asked)
        if isinstance(source, ErrorCode):
            return failed(asked, source), 0
        log = source.log
        preferred = self._preferred_replica(source, Offset(asked.fetch_offset))
        if preferred is not None:
            return _sent_to(preferred, log, asked), 0
        offset = asked.fetch_offset
        is_within = log.log_start_offset <= offset <= log.log_end_offset
        if asked.last_fetched_epoch >= 0 and not (is_within and asked.last_fetched_epoch == log.leader_epoch):
            diverged = _divergence(source, asked)
            if diverged is not None:
                return diverged, 0
        if self._replica is not None and is_within:
            self._note_fetched(source, self._replica, asked)
            if offset >= log.log_end_offset and self._knows_all(name, source, asked):
                return None, 0
        end = self._end(log)
        answer = _without_records(log, asked)
        if self._params.read_committed:
            answer.aborted_transactions = []
        if self._replica is not None and name in log.transactions.partitions:
            self._tell_ids(name, log, Offset(offset), answer)
        if offset >= end and is_within:
            if source.appended_end is not None and log.log_end_offset > offset:
                self._appended[name] = log.log_end_offset
            if self._replica is not None and _is_in_sync(source, self._replica.broker_id):
                self.caught_up.append(asked)
            return answer, 0
        if self._must_wait(name, source):
            return answer, 0
        if max_bytes < 0:
            return failed(asked, ErrorCode.UNKNOWN_SERVER_ERROR), 0
        try:
            read = self._find(log, offset, max_bytes, minimum_one=minimum_one)
        except OffsetOutOfRange:
            return failed(asked, ErrorCode.OFFSET_OUT_OF_RANGE), 0
        except OSError:
            return failed(asked, ErrorCode.KAFKA_STORAGE_ERROR), 0
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
        """The follower that a consumer should rather ask for what is at ``offset``; None: it reads where it asks."""
        racks = self._params.racks
        if racks is None or not isinstance(source, LeaderLog):
            return None
        followers = source.replicas.read_replicas(offset, self._context.now_ms)
        return preferred_read_replica(self._params.rack_id, self._context.cluster.broker_id, followers, racks)

    def _note_fetched(self, source: LeaderLog | FollowerLog, replica: Replica, asked: FetchPartition) -> None:
        if isinstance(source, LeaderLog):
            start, offset = Offset(asked.log_start_offset), Offset(asked.fetch_offset)
            self._partitions.replica_fetched(source, replica.broker_id, replica.broker_epoch, offset, start)

    def _knows_all(self, name: TopicPartition, source: LeaderLog | FollowerLog, asked: FetchPartition) -> bool:
        """True if a follower that has all records was told in its session all that an answer would say."""
        log = source.log
        if asked.told_high_watermark != log.high_watermark or asked.told_log_start_offset != log.log_start_offset:
            return False
        if name in log.transactions.partitions:
            return False
        if self._replica is not None and _is_in_sync(source, self._replica.broker_id):
            self.caught_up.append(asked)
        return True

    def _tell_ids(self, name: TopicPartition, log: PartitionLog, offset: Offset, answer: PartitionData) -> None:
        since = 0 if self._params.replica_has_no_session else offset
        answer.transactional_ids = log.transactions.encode_since(name, since, self._ids_left)
        self._ids_left -= len(answer.transactional_ids)


def _is_replica(source: LeaderLog | FollowerLog, broker_id: BrokerId) -> bool:
    return isinstance(source, LeaderLog) and source.replicas.follower(broker_id) is not None


def _is_in_sync(source: LeaderLog | FollowerLog, broker_id: BrokerId) -> bool:
    return isinstance(source, LeaderLog) and broker_id in source.replicas.in_sync


def _without_records(log: PartitionLog, asked: FetchPartition) -> PartitionData:
    """The answer that says where the log stands, and nothing else."""
    return PartitionData(
        partition_index=asked.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=None,
        records=NO_RECORDS,
    )


def _sent_to(preferred: BrokerId, log: PartitionLog, asked: FetchPartition) -> PartitionData:
    """The answer to a consumer that should rather ask a follower."""
    answer = _without_records(log, asked)
    answer.preferred_read_replica = preferred
    return answer


def _is_news(asked: FetchPartition, high_watermark: int, log_start_offset: int) -> bool:
    """True if a follower is to be told at once: it moves its high watermark, or its log start, by it."""
    return asked.told_high_watermark != high_watermark or -1 < asked.log_start_offset < log_start_offset


def _divergence(source: LeaderLog | FollowerLog, asked: FetchPartition) -> PartitionData | None:
    """The answer that says where the client's log and this one part, if the last epoch the client has seen says so
    (KIP-595)."""
    log = source.log
    epoch, end_offset = log.epoch_end_offset(asked.last_fetched_epoch, source.leader_epoch)
    if epoch == UNKNOWN or end_offset == UNKNOWN or asked.fetch_offset < log.log_start_offset:
        return failed(asked, ErrorCode.OFFSET_OUT_OF_RANGE)
    if not diverges(EpochEnd(epoch, end_offset), asked.fetch_offset, asked.last_fetched_epoch):
        return None
    answer = _without_records(log, asked)
    answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return answer
