"""A share partition with members, a log and a share coordinator, all random; what each record went through is noted."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import MemberId, Offset
from oncelog.core.share.model import (
    Acknowledgement,
    AcknowledgeType,
    AcquiredBatch,
    DeadLetters,
    RecordState,
    Refusal,
    ShareSettings,
    ShareState,
    StateBatch,
)
from oncelog.core.share.partition import SharePartition
from oncelog.core.share.transitions import StateWrite
from tests.conformance.share.log import LogBatch, ShareLog

MEMBERS = [MemberId(f"m{index}") for index in range(3)]


class Coordinator:
    """The written states by offset. Of two states the one with more deliveries counts, then the later one."""

    def __init__(self, start: Offset) -> None:
        self.start = start
        self.records: dict[int, tuple[int, int]] = {}
        self.acknowledged: set[int] = set()

    def write(self, state: ShareState) -> None:
        for first, last, delivery_state, count in state.batches:
            for offset in range(first, last + 1):
                kept_state, kept_count = self.records.get(offset, (0, 0))
                if (count, delivery_state) >= (kept_count, kept_state):
                    self.records[offset] = delivery_state, count
                if delivery_state == RecordState.ACKNOWLEDGED:
                    self.acknowledged.add(offset)
        self.start = max(self.start, state.start_offset)

    def read(self) -> ShareState:
        batches: list[StateBatch] = []
        for offset, (state, count) in sorted(self.records.items()):
            if offset < self.start:
                continue
            if batches and batches[-1][1:] == (offset - 1, state, count):
                batches[-1] = batches[-1]._replace(last_offset=Offset(offset))
            else:
                batches.append(StateBatch(Offset(offset), Offset(offset), state, count))
        return ShareState(0, self.start, -1, batches)

    def is_done(self, offset: int) -> bool:
        state, _ = self.records.get(offset, (0, 0))
        return offset < self.start or RecordState(state).is_terminal


class World:
    def __init__(self, seed: int) -> None:
        self.entropy = entropy = random.Random(seed)
        self.committed = entropy.random() < 0.4
        self.log = ShareLog(entropy, 0)
        self.coordinator = Coordinator(Offset(0))
        self.settings = self._any_settings()
        self.now_ms = 0
        self.may_exceed = False
        self.unwritten: set[int] = set()
        self.load()

    def _any_settings(self) -> ShareSettings:
        entropy = self.entropy
        deliveries, in_flight = entropy.choice([2, 3, 5, 10]), entropy.choice([5, 20, 60])
        return ShareSettings(
            entropy.choice([50, 1000]), deliveries, in_flight, entropy.random() < 0.8, entropy.random() < 0.4
        )

    def load(self) -> None:
        """A new leader reads what was written; writes in progress and copies are lost."""
        self.partition = SharePartition(self.coordinator.read(), self.settings)
        self.writes: list[StateWrite] = []
        self.letters: list[DeadLetters] = list(self.partition.pending_dead_letters)
        self.holders: dict[int, MemberId] = {}
        self.start = self.partition.start_offset

    def run(self, steps: int) -> None:
        weights = {
            self.grow: 10,
            self.fetch: 40,
            self.acknowledge: 35,
            self.acknowledge_anything: 5,
            self.acknowledge_nonsense: 3,
            self.release: 4,
            self.sleep: 10,
            self.move_log_start: 2,
            self.log.compact: 2,
            self.change_settings: 2,
            self.end_write: 30,
            self.end_copy: 10,
            self.load: 2,
        }
        for _ in range(steps):
            self.entropy.choices(list(weights), list(weights.values()))[0]()
            self.check()

    def check(self) -> None:
        self.partition.check()
        if self.partition.start_offset < self.start:
            raise AssertionError(f"the start fell from {self.start} to {self.partition.start_offset}")
        self.start = self.partition.start_offset

    def grow(self) -> None:
        self.log.grow(self.committed)

    def fetch(self, member: MemberId | None = None) -> Sequence[AcquiredBatch]:
        entropy, partition = self.entropy, self.partition
        if not partition.may_acquire():
            return ()
        if partition.next_fetch_offset() < self.log.start:
            partition.log_start_moved(Offset(self.log.start))
        offset = partition.next_fetch_offset()
        batches = self.log.read(offset, entropy.randint(1, 6), committed=self.committed)
        if not batches:
            return ()
        member = member or entropy.choice(MEMBERS)
        limit, most = entropy.random() < 0.4, entropy.choice([-1, 0, 1, 3, 10, 30])
        acquired = partition.acquire(
            member,
            batches,  # type: ignore[arg-type]
            self.log.aborted_in(batches) if self.committed else (),
            fetch_offset=offset,
            record_limit=limit,
            batch_size=entropy.choice([-1, 0, 1, 5, 1000]),
            max_records=most,
            now_ms=self.now_ms,
        )
        for batch in acquired:
            self._delivered(batch, member)
        if limit and most > 0 and sum(batch.record_count for batch in acquired) > most:
            raise AssertionError(f"more than {most} records: {acquired}")
        return acquired

    def _delivered(self, batch: AcquiredBatch, member: MemberId) -> None:
        for offset in range(batch.first_offset, batch.last_offset + 1):
            if offset in self.coordinator.acknowledged or self.coordinator.is_done(offset):
                raise AssertionError(f"{offset} is delivered although it is done")
            if offset in self.holders:
                raise AssertionError(f"{offset} is delivered to two members")
            if batch.delivery_count > self.settings.max_deliveries and not self.may_exceed:
                raise AssertionError(f"{offset} is delivered {batch.delivery_count} times")
            if self.committed and any(self._is_aborted(log_batch, offset) for log_batch in self.log.batches):
                raise AssertionError(f"{offset} is aborted")
            self.holders[offset] = member

    def _is_aborted(self, batch: LogBatch, offset: int) -> bool:
        return (
            batch.kind == "transactional"
            and batch.base_offset <= offset <= batch.last_offset
            and any(
                producer_id == batch.producer_id and first <= offset < marker
                for producer_id, first, marker in self.log.aborted
            )
        )

    def acknowledge(self) -> None:
        held = [run for run in self.partition.in_flight() if run.delivery_state is RecordState.ACQUIRED]
        if not held:
            return
        begin = self.entropy.randrange(len(held))
        member = held[begin].member_id
        runs = [run for run in held[begin : begin + 3] if run.member_id == member]
        self.send(member, [self._about(run.first_offset, run.last_offset) for run in runs])

    def _about(self, first: int, last: int) -> Acknowledgement:
        entropy = self.entropy
        if entropy.random() < 0.3:
            first = entropy.randint(first, last)
            last = entropy.randint(first, last)
        kinds, weights = [0, 1, 2, 3, 4], [2, 10, 8, 3, 2]
        count = 1 if entropy.random() < 0.6 else last - first + 1
        return Acknowledgement(Offset(first), Offset(last), entropy.choices(kinds, weights, k=count))

    def acknowledge_anything(self) -> None:
        first = self.entropy.randint(0, self.log.end + 3)
        self.send(self.entropy.choice(MEMBERS), [self._about(first, first + self.entropy.choice([0, 1, 20]))])

    def acknowledge_nonsense(self) -> None:
        """Offsets and types that make no sense: they are refused, or change nothing."""
        entropy = self.entropy
        first, last = (entropy.choice([-1, 0, entropy.randint(0, self.log.end + 3), 2**63 - 1]) for _ in range(2))
        types = [entropy.choice([-128, -1, 0, 1, 4, 5, 127]) for _ in range(entropy.choice([0, 1, 2, 30]))]
        before = list(self.partition.in_flight())
        member = MemberId(entropy.choice(["", "stranger"]))
        outcome = self.partition.acknowledge(member, [Acknowledgement(Offset(first), Offset(last), types)], 0)
        if isinstance(outcome, StateWrite):
            raise AssertionError(f"nonsense is written: {first} to {last}, {types}")
        self._expect_unchanged(before)

    def send(self, member: MemberId, acknowledgements: Sequence[Acknowledgement]) -> StateWrite | Refusal | None:
        before = list(self.partition.in_flight())
        outcome = self.partition.acknowledge(member, acknowledgements, self.now_ms)
        if isinstance(outcome, Refusal):
            self._expect_unchanged(before)
        elif isinstance(outcome, StateWrite):
            for first, last, *_ in outcome.state.batches:
                for offset in range(first, last + 1):
                    if offset >= self.log.start and self.holders.pop(offset, None) != member:
                        raise AssertionError(f"{offset} is acknowledged by another member")
            self.writes.append(outcome)
        return outcome

    def _expect_unchanged(self, before: list[Any]) -> None:
        def by_offset(rows: list[Any]) -> dict[int, Any]:
            # Locks may have been renewed.
            return {o: row[2:5] for row in rows for o in range(row.first_offset, row.last_offset + 1)}

        if by_offset(before) != by_offset(list(self.partition.in_flight())):
            raise AssertionError("a refused acknowledgement has changed records")

    def release(self) -> None:
        member = self.entropy.choice(MEMBERS)
        self._freed(self.partition.release(member))
        self.holders = {offset: holder for offset, holder in self.holders.items() if holder != member}

    def sleep(self) -> None:
        self.now_ms += self.entropy.choice([1, 20, 100, 1000])
        self._freed(self.partition.expire(self.now_ms))
        deadline_ms = self.partition.next_deadline_ms
        if deadline_ms is not None and deadline_ms <= self.now_ms:
            raise AssertionError("a lock has outlived its deadline")

    def _freed(self, write: StateWrite | None) -> None:
        if write is not None:
            self.writes.append(write)
            for first, last, *_ in write.state.batches:
                for offset in range(first, last + 1):
                    self.holders.pop(offset, None)

    def move_log_start(self) -> None:
        self.log.move_start(self.entropy.randint(self.log.start, min(self.log.end, self.log.start + 40)))
        if self.entropy.random() < 0.5:
            self.partition.log_start_moved(Offset(self.log.start))

    def change_settings(self) -> None:
        settings = self._any_settings()
        self.may_exceed |= settings.max_deliveries < self.settings.max_deliveries
        self.settings = self.partition.settings = settings

    def end_write(self, error: ErrorCode | None = None) -> None:
        if not self.writes:
            return
        write = self.writes.pop(0 if self.entropy.random() < 0.8 else self.entropy.randrange(len(self.writes)))
        if error is None:
            error = ErrorCode.NOT_COORDINATOR if self.entropy.random() < 0.15 else ErrorCode.NONE
        if error is ErrorCode.NONE:
            self.coordinator.write(write.state)
        else:
            self._note_unwritten(write)
        outcome = self.partition.written(write, error)
        self.letters += outcome.dead_letters
        if not write.is_final and error is not ErrorCode.NONE:
            # The members hold their records again, unless their locks have expired.
            for row in self.partition.in_flight():
                if row.delivery_state is RecordState.ACQUIRED and row.member_id:
                    for offset in range(row.first_offset, row.last_offset + 1):
                        self.holders.setdefault(offset, row.member_id)

    def _note_unwritten(self, write: StateWrite) -> None:
        """Records whose lock expired during a failed write after their last delivery are archived without a write. What
        a failed final write says holds here all the same."""
        if write.is_final:
            for first, last, *_ in write.state.batches:
                self.unwritten.update(range(first, last + 1))
        for batch in self.partition._window.batches:
            for run in batch.runs:
                transition = run.transition
                if transition is not None and transition in write.transitions and run.lock and run.lock.has_expired:
                    self.unwritten.update(range(run.first_offset, run.last_offset + 1))

    def end_copy(self) -> None:
        if self.letters:
            self.writes.append(self.partition.archived(self.letters.pop()))

    def drain(self) -> None:
        """Members acknowledge everything from now on, and nothing fails: the window gets to the end of the log."""
        self.settings = self.partition.settings = self.settings._replace(lock_duration_ms=50)
        for _ in range(2000):
            self.now_ms += 60
            self._freed(self.partition.expire(self.now_ms))
            while self.letters:
                self.end_copy()
            while self.writes:
                self.end_write(ErrorCode.NONE)
                self.check()
            if self.partition.start_offset >= self._end() and not self.letters:
                self._expect_all_done()
                return
            acquired = self.fetch(MEMBERS[0])
            self.check()
            accept = [AcknowledgeType.ACCEPT]
            self.send(MEMBERS[0], [Acknowledgement(first, last, accept) for first, last, _ in acquired])
        in_flight = list(self.partition.in_flight())
        raise AssertionError(f"stuck at {self.partition.start_offset} of {self._end()}: {in_flight}")

    def _expect_all_done(self) -> None:
        for batch in self.log.batches:
            for offset in range(max(batch.base_offset, self.log.start), min(batch.last_offset + 1, self._end())):
                is_hidden = batch.is_control or (self.committed and self._is_aborted(batch, offset))
                # An earlier leader's delivery does not count: its end was not written.
                if offset not in self.coordinator.records and offset not in self.unwritten and not is_hidden:
                    raise AssertionError(f"{offset} was never acknowledged, released or archived")

    def _end(self) -> int:
        """The end of the window when all is done."""
        end = self.log.stable_end if self.committed else self.log.end
        return max((b.last_offset + 1 for b in self.log.batches if b.last_offset < end), default=0)
