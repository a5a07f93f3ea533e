"""Copies records in transactions: frames, the positions they came from, and the proof of ownership, all or nothing.

The order within a transaction: the frames; once all have offsets at the target, the records of the positions topic;
each slot's offset for the group (refused for a member of an older generation); the commit. After a failure this object
must not be used again: the outcome of a commit may be unknown, and only the positions topic, read after the next
producer was initialized, tells.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import loop_ms
from oncelog.client.aio.transactions import AsyncTransactionalProducer
from oncelog.client.errors import TransactionFailed
from oncelog.client.machine.offsets import Committed, GroupMetadata
from oncelog.client.machine.pending_batch import BatchOutcome, Failed
from oncelog.client.machine.positions import Fetched
from oncelog.mirror.framing import Frame, FrameLimits, frames
from oncelog.mirror.offset_map import MappedRun, mapped
from oncelog.mirror.positions_topic import CopiedPartition, Gap, slot_of
from oncelog.mirror.progress import Progress
from oncelog.mirror.refusals import REFUSALS, BatchRefusal, Refused, refusal_of
from oncelog.mirror.settings import MirrorSettings

_STORE_IDLE_MS: Final = 10_000
"""The interval for storing positions that moved without a record."""


class GroupMove(NamedTuple):
    group: str
    copied: CopiedPartition
    to: Committed

    @property
    def target(self) -> TopicPartition:
        return TopicPartition(TopicName(self.copied.target), self.copied.partition.partition)


class Copier:
    """Copies a source's fetch responses within transactions of one producer, which only this object uses."""

    def __init__(
        self,
        producer: AsyncTransactionalProducer,
        settings: MirrorSettings,
        topic: TopicName,
        slots: int,
        who: Callable[[], GroupMetadata],
        progress: Progress,
        now_ms: Callable[[], int],
        before_records: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """``before_records`` is called before a transaction with records is committed."""
        self._producer = producer
        self._settings = settings
        self._topic = topic
        self._slots = slots
        self._who = who
        self._progress = progress
        self._now_ms = now_ms
        self._before_records = before_records
        self._sent: dict[int, tuple[CopiedPartition, Frame]] = {}
        self._sending: tuple[CopiedPartition, Frame] | None = None
        """The frame waiting for room in the producer's buffer: it has no number yet."""
        self._failed: list[Failed] = []
        self._offsets: dict[int, int] = {}
        self._moved: dict[TopicPartition, tuple[CopiedPartition, int]] = {}
        self._ends: dict[TopicPartition, int] = {}
        """The ends of the slots after this transaction's records."""
        self._others: list[tuple[int, bytes, bytes | None]] = []
        """Records for slots, beside maps: slot, key, value."""
        self._size_bytes = 0
        self._began_ms: int | None = None
        self._noted_ms = loop_ms()
        producer.on_outcome = self._delivered

    @property
    def is_open(self) -> bool:
        return self._began_ms is not None

    @property
    def due_in_ms(self) -> int | None:
        """Milliseconds until the open transaction should be committed; None if none is open."""
        if self._began_ms is None:
            return None
        if self._size_bytes >= self._settings.transaction_bytes:
            return 0
        return max(0, self._began_ms + self._settings.commit_interval_ms - loop_ms())

    async def take(self, fetched: Fetched, copied: CopiedPartition, limits: FrameLimits) -> int:
        """Copy what was fetched of a partition. Returns the number of records."""
        target = _target_of(copied)
        stable = fetched.last_stable_offset
        copied.source_end = stable if stable >= 0 else fetched.high_watermark
        count = 0
        for frame in frames(fetched, limits):
            self._begin()
            self._size_bytes += len(frame.batch)
            self._sending = copied, frame
            number = await self._producer.send_batch(target, frame.batch)
            self._sent[number] = copied, frame
            count += frame.records
        if count or self.is_open:
            self._moved[copied.partition] = copied, fetched.next_offset
        else:
            copied.offsets.extend((), fetched.next_offset)
        return count

    def begin_partition(self, copied: CopiedPartition) -> None:
        self._begin()
        self._moved[copied.partition] = copied, copied.offsets.position

    def record_gap(self, copied: CopiedPartition, gap: Gap) -> None:
        """Store a gap that was accepted, and the position behind it."""
        self._begin()
        key, value = copied.gap_record(gap, self._now_ms())
        self._others.append((slot_of(copied.partition, self._slots), key, value))
        self._moved[copied.partition] = copied, gap.end
        copied.gaps.append(gap)

    def forget(self, copied: CopiedPartition, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._begin()
            self._others.append((slot_of(copied.partition, self._slots), key, None))

    def note_idle(self, partitions: list[CopiedPartition], *, now: bool = False) -> None:
        """Begin a transaction for positions that moved over nothing visible, when due (or ``now``)."""
        if not self.is_open and (now or loop_ms() - self._noted_ms >= _STORE_IDLE_MS):
            self._noted_ms = loop_ms()
            for copied in partitions:
                if copied.offsets.position != copied.noted_position:
                    self.begin_partition(copied)

    async def flush(self) -> None:
        """Wait until the target has accepted all frames of the open transaction. Raises ClientError."""
        if self.is_open:
            await self._producer.flush()

    async def commit(self) -> None:
        producer = self._producer
        # The maps need the offsets that the frames were given.
        await producer.flush()
        if self._before_records is not None and self._sent:
            await self._before_records()
        touched = self._extend_maps()
        records = [*self._others]
        for copied in touched:
            slot = slot_of(copied.partition, self._slots)
            copied.written_ms = self._now_ms()
            records += [(slot, key, value) for key, value in copied.records()]
        for slot, key, value in records:
            await producer.send(self._topic, value, key=key, partition=slot)
        await self._prove_ownership()
        await producer.commit()
        for copied in touched:
            copied.noted()
        self._close()

    async def commit_groups(self, moves: Sequence[GroupMove], are_ours: Callable[[], Awaitable[bool]]) -> bool:
        """Commit offsets for groups in a transaction of their own, if ``are_ours`` agrees while they are pending. No
        transaction may be open. False if they were aborted.
        """
        producer = self._producer
        producer.begin()
        by_group: dict[str, dict[TopicPartition, Committed]] = {}
        for move in moves:
            slot = slot_of(move.copied.partition, self._slots)
            key, value = move.copied.group_record(move.group, move.to.offset)
            await producer.send(self._topic, value, key=key, partition=slot)
            by_group.setdefault(move.group, {})[move.target] = move.to
        await self._prove_ownership()
        for group, offsets in by_group.items():
            await producer.send_offsets(offsets, GroupMetadata(group))
        # Checked while the offsets are pending: see rule 3 of ``group_sync``.
        agreed = await are_ours()
        await (producer.commit() if agreed else producer.abort())
        return agreed

    async def _prove_ownership(self) -> None:
        """Commit the ends of the slots written by the transaction, which only their owner may do."""
        await self._producer.flush()
        ends = {slot: Committed(max(0, end)) for slot, end in self._ends.items()}
        await self._producer.send_offsets(ends, self._who())
        self._ends.clear()

    def _begin(self) -> None:
        if self._began_ms is None:
            self._producer.begin()
            self._began_ms = loop_ms()

    def _extend_maps(self) -> list[CopiedPartition]:
        runs: dict[TopicPartition, list[MappedRun]] = {}
        for number, (copied, frame) in self._sent.items():
            base = self._offsets.get(number, -1)
            if base < 0:
                raise TransactionFailed(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"{copied.target}",
                    "the broker did not say at which offset it appended",
                )
            runs.setdefault(copied.partition, []).extend(mapped(frame.runs, base))
        for partition, (copied, position) in self._moved.items():
            copied.offsets.extend(runs.get(partition, ()), position)
        return [copied for copied, _ in self._moved.values()]

    def _delivered(self, outcome: BatchOutcome) -> None:
        if isinstance(outcome, Failed):
            self._failed.append(outcome)
        elif outcome.partition.topic == self._topic:
            self._ends[outcome.partition] = outcome.base_offset + outcome.records
        else:
            self._offsets[outcome.number] = outcome.base_offset

    async def abandon(self) -> list[tuple[CopiedPartition, BatchRefusal]]:
        """Abort a failed transaction. Returns the first refusal in each partition; none if it failed for another
        reason. Raises ClientError.

        Refused partitions have to be fetched again from their positions; other records are kept for the next
        transaction.
        """
        if self._producer.transactions.is_open:  # ``trials`` may have abandoned it already
            await self._producer.abort()  # which waits for the answers in flight: they may be refusals, too
        refusals, others = self._refusals(), self._others.copy()
        self._reset()
        if others:  # they do not depend on the copied frames, and would not be found again
            self._begin()
            self._others += others
        return refusals

    def _refusals(self) -> list[tuple[CopiedPartition, BatchRefusal]]:
        first: dict[TopicPartition, tuple[CopiedPartition, BatchRefusal]] = {}
        for failed in self._failed:
            entry = self._sent.get(failed.number, self._sending)
            refusal = None if entry is None else refusal_of(failed, entry[1])
            if entry is None or refusal is None or TopicName(entry[0].target) != failed.partition.topic:
                continue
            earliest = first.get(entry[0].partition)
            if earliest is None or refusal.refused.offset < earliest[1].refused.offset:
                first[entry[0].partition] = entry[0], refusal
        for copied in self._partitions_not_added():
            code = self._producer.transactions.refused_partitions[_target_of(copied)]
            refused = Refused(copied.offsets.position, code, None)
            first[copied.partition] = copied, BatchRefusal(refused, True, 0, 0)
        return list(first.values())

    def _partitions_not_added(self) -> list[CopiedPartition]:
        entries = [*self._sent.values(), *([] if self._sending is None else [self._sending])]
        taken = {copied.partition: copied for copied, _ in entries}
        refused = self._producer.transactions.refused_partitions
        return [copied for copied in taken.values() if refused.get(_target_of(copied)) in REFUSALS]

    def _close(self) -> None:
        self._progress.committed(sum(frame.records for _, frame in self._sent.values()), self._size_bytes)
        self._reset()

    def _reset(self) -> None:
        self._sent.clear()
        self._sending = None
        self._failed.clear()
        self._ends.clear()
        self._offsets.clear()
        self._moved.clear()
        self._others.clear()
        self._size_bytes = 0
        self._began_ms = None


def _target_of(copied: CopiedPartition) -> TopicPartition:
    return TopicPartition(TopicName(copied.target), copied.partition.partition)
