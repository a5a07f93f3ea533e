"""An idempotent producer: groups records into batches, and gets every batch into the log exactly once.

1. A batch gets its sequence when it is first sent, and keeps it: sent again it is recognised (KIP-98).
2. At most five batches of a partition are in flight, because the broker remembers five. They are sent in order, after a
   failure too.
3. When a batch is given up, the sequences after it no longer fit: once nothing of the partition is in flight, the epoch
   is raised and what is left of that partition is numbered from 0 again (KIP-360). Other partitions keep id, epoch and
   sequences until they have nothing numbered left. Exhausted epochs need a new producer id.
4. In a transaction (``transactional``) a batch that is given up costs the transaction, ``discard`` drops what is left,
   and the coordinator raises the epoch.
5. A batch that is too large is cut in two, again and again until the broker takes the parts, which keep the sequences
   of their records. The same holds for a batch with a refused record, if the broker does not name the record (KIP-467).

Without an id (``producer_id`` −1) the same machine gives at-least-once delivery.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.base.invariant import invariant
from oncelog.base.units import INT16_MAX, KIB
from oncelog.client.errors import ConfigError
from oncelog.client.machine.pending_batch import BatchOutcome, Delivered, Failed, PendingBatch, record_size
from oncelog.client.machine.retry import Remedy, remedy
from oncelog.client.setting_checks import check_range
from oncelog.records.batch import next_sequence, read_header, set_producer
from oncelog.records.builder import build_batch
from oncelog.records.compression import Codec
from oncelog.records.record import Record

MAX_IN_FLIGHT: Final = 5
_BUSY_PAUSE_MS: Final = 5
"""The pause while the previous transaction completes, which takes milliseconds."""
_APPENDED: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_NOT_OF_THIS_SEQUENCE: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_REFUSED_FOR_RECORDS: Final = (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)
"""Refusals of a whole batch because of some of its records."""
ABOUT_RECORDS: Final = frozenset({*_TOO_LARGE, *_REFUSED_FOR_RECORDS})
"""Refusals of single records: others of the same partition may be accepted."""
_PERHAPS_APPENDED: Final = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Also answers to batches that were appended, and wait for replicas when their leader resigns or its disk fails."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Apache Kafka's producer defaults, but with larger batches."""

    batch_bytes: int = 256 * KIB
    linger_ms: int = 5
    codec: Codec = Codec.NONE
    level: int | None = None
    acks: int = -1
    delivery_timeout_ms: int = 120_000
    max_batches_a_request: int = 64

    def __post_init__(self) -> None:
        if self.acks not in (-1, 0, 1):
            raise ConfigError(f"acks={self.acks}: use -1 (all), 0 or 1")
        for name, least in (("batch_bytes", 1), ("linger_ms", 0), ("delivery_timeout_ms", 0)):
            check_range(name, getattr(self, name), least)
        check_range("max_batches_a_request", self.max_batches_a_request, 1)


@dataclass(slots=True)
class _Partition:
    queue: deque[PendingBatch] = field(default_factory=deque)
    in_flight: list[PendingBatch] = field(default_factory=list)
    identity: tuple[int, int] = (-1, -1)
    next_sequence: int = 0
    failed_place: tuple[int, int] | None = None
    """The first batch that was given up: those after it are numbered anew, those before it go first as they are."""
    unsure: bool = False
    """True if the batch that was given up may have been appended."""
    known_id: int = -1
    """The producer id under which the leader has acknowledged a batch."""


class ProducerMachine:
    """The batches of a producer: ``identify`` it, ``add`` records; ``ready`` and ``drain`` yield batches."""

    def __init__(self, settings: ProducerSettings, *, transactional: bool = False) -> None:
        self.settings = settings
        self.producer_id = -1
        self.producer_epoch = -1
        self.buffered_bytes = 0
        self._batches = 0
        self._transactional = transactional
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._limits: dict[str, int] = {}
        """The largest batches, in bytes before compression, of topics that refused larger ones."""

    @property
    def is_empty(self) -> bool:
        return not any(state.queue or state.in_flight for state in self._partitions.values())

    @property
    def needs_identity(self) -> bool:
        """True without a producer id, or if its epochs are exhausted."""
        return self.producer_id < 0 or self.producer_epoch >= INT16_MAX

    def identify(self, producer_id: int, producer_epoch: int) -> None:
        """Set the producer id and epoch from InitProducerId."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch

    def add(self, partition: TopicPartition, record: Record, now_ms: int) -> None:
        state = self._partitions.setdefault(partition, _Partition())
        size = record_size(record)
        last = state.queue[-1] if state.queue else None
        if last is None or last.attempts or last.framed or last.size_bytes + size > self._limit(partition):
            self._batches += 1
            last = PendingBatch(partition, self._batches, now_ms)
            state.queue.append(last)
        last.records.append(record)
        last.count += 1
        last.size_bytes += size
        self.buffered_bytes += size

    def add_batch(self, partition: TopicPartition, batch: bytearray, now_ms: int) -> int:
        """Queue a prepared batch (format 2, base offset 0, no holes), into which the machine writes id, epoch, sequence
        and checksum. Returns its outcome's number."""
        state = self._partitions.setdefault(partition, _Partition())
        self._batches += 1
        pending = PendingBatch(partition, self._batches, now_ms, size_bytes=len(batch), framed=batch)
        pending.count = read_header(batch).record_count
        state.queue.append(pending)
        self.buffered_bytes += len(batch)
        return self._batches

    def ready(self, now_ms: int, *, flush: bool = False) -> Iterator[TopicPartition]:
        """Partitions whose next batch may be sent now: full, old enough, or ``flush``."""
        for partition, state in self._partitions.items():
            # The first batch is in flight alone: a leader that does not know the producer takes any sequence, so it
            # would take the second batch after it refused the first.
            if not state.queue or len(state.in_flight) >= (MAX_IN_FLIGHT if state.known_id == self.producer_id else 1):
                continue
            first = state.queue[0]
            # Batches after the failure wait for ``renumber``.
            if state.failed_place is not None and first.place > state.failed_place:
                continue
            # Nothing is sent while an earlier batch of the partition waits to be repeated.
            if first.not_before_ms > now_ms or (first.attempts and state.in_flight):
                continue
            full = len(state.queue) > 1 or first.framed or first.size_bytes >= self._limit(partition)
            if full or flush or first.attempts or now_ms - first.created_ms >= self.settings.linger_ms:
                yield partition

    def next_due_ms(self) -> int:
        """The time from which the first batch that waits for a retry may be sent; 0 when none waits."""
        waiting = (state.queue[0].not_before_ms for state in self._partitions.values() if state.queue)
        return min((due for due in waiting if due), default=0)

    def drain(self, partition: TopicPartition) -> PendingBatch:
        """Take the next batch of a ready partition; its ``contents`` are the bytes to send."""
        state = self._partitions[partition]
        batch = state.queue.popleft()
        # Later batches of the topic are not larger than the accepted parts.
        if batch.sequence < 0 and batch.is_divisible and batch.size_bytes > self._limit(partition):
            batch, *others = batch.divided(self._limit(partition))
            state.queue.extendleft(reversed(others))
        state.in_flight.append(batch)
        batch.attempts += 1
        if batch.encoded is None:
            self._number(state, batch)
            batch.encoded = self._encode(batch, *state.identity)
        return batch

    def answered(
        self,
        batch: PendingBatch,
        error_code: int,
        base_offset: int,
        message: str | None,
        now_ms: int,
        refused: Sequence[int] = (),
    ) -> BatchOutcome | None:
        """Apply the broker's answer for one batch. Returns its outcome, or None if it will be sent again. ``refused``
        indexes the records that caused a refusal."""
        state = self._partitions[batch.partition]
        if error_code in _APPENDED:
            self._finish(batch)
            # The leader knows the producer now.
            state.known_id = state.identity[0]
            return Delivered(batch.partition, batch.count, base_offset, batch.number)
        named = tuple(sorted({index for index in refused if 0 <= index < batch.count}))
        if error_code in _TOO_LARGE or (error_code in _REFUSED_FOR_RECORDS and not named):
            # A record that is too large alone is given up below.
            if batch.is_divisible:
                self._divide(batch, error_code)
                return None
        # The records that the broker names are given up, the others are sent again.
        elif error_code in _REFUSED_FOR_RECORDS:
            return self._give_up_named(batch, named, error_code, message)
        if error_code in _PERHAPS_APPENDED:
            batch.ambiguous = True
        if error_code in _NOT_OF_THIS_SEQUENCE and self._follows_a_failure(state, batch, error_code):
            again = True
        else:
            again = remedy(error_code) is not Remedy.FAIL and not self._is_late(batch, now_ms)
        if again:
            self._again(batch, now_ms, error_code)
            return None
        return self._give_up(batch, error_code, message)

    def lost(self, batch: PendingBatch, now_ms: int) -> BatchOutcome | None:
        """A batch got no answer. Returns its outcome if it is too late for a retry, else None."""
        batch.ambiguous = True
        if self._is_late(batch, now_ms):
            return self._give_up(batch, ErrorCode.REQUEST_TIMED_OUT, "not delivered in time")
        self._again(batch, now_ms)
        return None

    def undeliverable(self, partition: TopicPartition, error_code: int, message: str) -> list[Failed]:
        state = self._partitions[partition]
        given_up = []
        while state.queue:
            batch = state.queue.popleft()
            state.in_flight.append(batch)
            # A sequence is used: the next batches have to be renumbered.
            if batch.attempts:
                given_up.append(self._give_up(batch, error_code, message))
            else:  # it has used no sequence: none is missing
                self._finish(batch)
                given_up.append(Failed(batch.partition, batch.records, error_code, message, number=batch.number))
        return given_up

    def sent_unanswered(self, batch: PendingBatch) -> BatchOutcome:
        self._finish(batch)
        return Delivered(batch.partition, batch.count, -1, batch.number)

    def renumber(self) -> list[Failed]:
        """Raise the epoch if partitions lost their sequence and have nothing in flight. Returns batches given up."""
        restartable = [partition for partition in self._partitions.values() if _may_restart(partition)]
        if not restartable or self.producer_id < 0 or self.producer_epoch >= INT16_MAX:
            return []
        self.producer_epoch += 1
        return [failed for state in restartable for failed in self._restart(state)]

    def discard(self) -> bool:
        """Drop all batches, in flight or not, of an aborted transaction. Returns True if some had used sequences."""
        used = False
        for state in self._partitions.values():
            left = [*state.in_flight, *state.queue]
            used |= state.failed_place is not None or any(batch.attempts for batch in left)
            state.queue.clear()
            state.in_flight.clear()
            state.failed_place, state.unsure = None, False
        self.buffered_bytes = 0
        return used

    def _encode(self, batch: PendingBatch, producer_id: int, producer_epoch: int) -> bytearray:
        if batch.framed is not None:
            sequence, transactional = batch.sequence, self._transactional
            set_producer(batch.framed, 0, producer_id, producer_epoch, sequence, transactional=transactional)
            return batch.framed
        return build_batch(
            batch.records,
            codec=self.settings.codec,
            level=self.settings.level,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=batch.sequence,
            transactional=self._transactional,
        )

    def _limit(self, partition: TopicPartition) -> int:
        return self._limits.get(partition.topic, self.settings.batch_bytes)

    def _divide(self, batch: PendingBatch, error_code: int) -> None:
        state = self._partitions[batch.partition]
        half = batch.size_bytes // 2
        if error_code in _TOO_LARGE:
            self._limits[batch.partition.topic] = min(half, self._limit(batch.partition))
            half = self._limits[batch.partition.topic]
        state.in_flight.remove(batch)
        self._insert(state, batch.divided(half))

    def _give_up_named(
        self, batch: PendingBatch, named: tuple[int, ...], error_code: int, message: str | None
    ) -> Failed:
        kept = sorted(set(range(batch.count)) - set(named))
        failed = self._give_up(batch, error_code, message, named)
        if not kept or self._transactional or not batch.is_divisible:
            return failed
        # The sequences of the batch have a hole now: behind ``failed_place`` the rest is numbered anew.
        rest = PendingBatch(batch.partition, batch.number, batch.created_ms, [batch.records[index] for index in kept])
        rest.part, rest.count, rest.attempts = batch.part + 1, len(kept), batch.attempts
        # A batch that may be in the log is not numbered anew: ``_restart`` gives the rest up as ``maybe_appended``.
        rest.ambiguous = batch.ambiguous
        rest.size_bytes = sum(map(record_size, rest.records))
        self.buffered_bytes += rest.size_bytes
        self._insert(self._partitions[batch.partition], [rest])
        return failed

    def _insert(self, state: _Partition, batches: list[PendingBatch]) -> None:
        at = sum(1 for waiting in state.queue if _before(waiting, batches[0]))
        for batch in reversed(batches):
            state.queue.insert(at, batch)

    def _number(self, state: _Partition, batch: PendingBatch) -> None:
        if self.producer_id < 0 or batch.sequence >= 0:
            return
        current = (self.producer_id, self.producer_epoch)
        if state.identity != current and state.in_flight == [batch]:
            state.identity, state.next_sequence = current, 0
        batch.sequence = state.next_sequence
        state.next_sequence = next_sequence(batch.sequence, batch.count)

    def _follows_a_failure(self, state: _Partition, batch: PendingBatch, error_code: int) -> bool:
        """True if the sequence was refused because an earlier batch failed, or the broker forgot the producer id."""
        if state.failed_place is not None and batch.place > state.failed_place:
            return True
        if state.in_flight[0] is not batch or any(_before(queued, batch) for queued in state.queue):
            return True
        if not self._transactional and error_code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.attempts == 1:
            state.failed_place = (batch.number, batch.part - 1)
            return True
        return False

    def _again(self, batch: PendingBatch, now_ms: int, error_code: int = ErrorCode.NONE) -> None:
        state = self._partitions[batch.partition]
        state.in_flight.remove(batch)
        busy = error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        batch.not_before_ms = now_ms + (_BUSY_PAUSE_MS if busy else min(50 << min(batch.attempts, 5), 1000))
        self._insert(state, [batch])

    def _give_up(
        self, batch: PendingBatch, error_code: int, message: str | None, named: tuple[int, ...] = ()
    ) -> Failed:
        state = self._partitions[batch.partition]
        self._finish(batch)
        if self.producer_id >= 0:
            state.failed_place = min(batch.place, state.failed_place or batch.place)
            state.unsure |= batch.ambiguous
        records = [batch.records[index] for index in named] if named and batch.is_divisible else batch.records
        return Failed(batch.partition, records, error_code, message, batch.ambiguous, batch.number, named)

    def _finish(self, batch: PendingBatch) -> None:
        state = self._partitions[batch.partition]
        invariant(batch in state.in_flight, "an answer for a batch that is not in flight", partition=batch.partition)
        state.in_flight.remove(batch)
        self.buffered_bytes -= batch.size_bytes

    def _restart(self, state: _Partition) -> list[Failed]:
        """Number a partition from 0 under the current epoch: waiting batches are encoded again, or given up."""
        # Batches that may have been appended are given up as ``maybe_appended``.
        doubtful = [batch for batch in state.queue if batch.ambiguous and state.unsure]
        for batch in doubtful:
            state.queue.remove(batch)
            self.buffered_bytes -= batch.size_bytes
        for batch in state.queue:
            batch.encoded = None
            batch.sequence = -1
        state.failed_place, state.unsure = None, False
        state.identity = (self.producer_id, self.producer_epoch)
        state.next_sequence = 0
        text = "an earlier batch is lost, so it cannot be repeated safely"
        return [
            Failed(batch.partition, batch.records, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text, True, batch.number)
            for batch in doubtful
        ]

    def _is_late(self, batch: PendingBatch, now_ms: int) -> bool:
        return now_ms - batch.created_ms >= self.settings.delivery_timeout_ms


def _may_restart(state: _Partition) -> bool:
    """True if no batch numbered before the failure is left to be sent."""
    if state.failed_place is None or state.in_flight:
        return False
    return not state.queue or state.queue[0].place > state.failed_place


def _before(batch: PendingBatch, other: PendingBatch) -> bool:
    """True if ``batch`` was sent already and precedes ``other`` in sequence order."""
    return batch.attempts > 0 and batch.place < other.place
