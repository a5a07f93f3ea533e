"""A log against a list: whatever happens, in whatever order, with power lost at any point.

What must hold: every record that was synced is there after a crash, once and in order; nothing that was cut comes
back; the log is always a prefix of what was appended; producer state and aborted transactions follow from the log.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from oncelog.base.errors import ErrorCode
from oncelog.ports import OpenFile
from oncelog.records.batch import iter_headers
from oncelog.records.record import read_records
from oncelog.sim.virtual.files import PowerLost
from oncelog.storage.errors import AppendRefused
from oncelog.storage.log.read import read_batches, search_timestamp
from oncelog.storage.log.rolling import roll
from tests.unit.storage.support import NOW, PARTITION, SMALL, TOPIC_ID, World, batch, content, found_by

PRODUCERS = st.integers(0, 2)


@dataclass(frozen=True)
class Written:
    """One record (or marker) of the model."""

    offset: int
    value: bytes
    timestamp: int
    producer: int = -1
    sequence: int = -1
    transactional: bool = False
    marker: bool | None = None


class LogMachine(RuleBasedStateMachine):
    """Rules on a log with small segments; the model is a list."""

    @initialize(interval=st.sampled_from([0, 100, 100_000]), segment_bytes=st.sampled_from([700, 1500, 1 << 20]))
    def begin(self, interval: int, segment_bytes: int) -> None:
        config = SMALL._replace(index_interval_bytes=interval, segment_bytes=segment_bytes)
        self.world = World(config)
        self.written: list[Written] = []
        self.start = 0
        self.synced = 0
        self.pending: tuple[list[OpenFile], int] | None = None
        self.counter = 0

    def end(self) -> int:
        return self.written[-1].offset + 1 if self.written else self.start

    def next_sequence(self, producer: int) -> int:
        known = self.world.log.producers.entries.get(producer)
        return 0 if known is None else known.last_sequence + 1

    def open_transactions(self) -> dict[int, int]:
        begun: dict[int, int] = {}
        for record in self.written:
            if record.marker is not None:
                begun.pop(record.producer, None)
            elif record.transactional:
                begun.setdefault(record.producer, record.offset)
        return begun

    @rule(sizes=st.lists(st.integers(0, 120), min_size=1, max_size=4), step=st.integers(-5, 50))
    def append(self, sizes: list[int], step: int) -> None:
        self._append(sizes, step, producer=-1, transactional=False)

    @rule(sizes=st.lists(st.integers(0, 60), min_size=1, max_size=3), producer=PRODUCERS, transactional=st.booleans())
    def append_idempotent(self, sizes: list[int], producer: int, transactional: bool) -> None:
        self._append(sizes, 1, producer, transactional or producer in self.open_transactions())

    def _append(self, sizes: list[int], step: int, producer: int, transactional: bool) -> None:
        self.counter += 1
        values = [b"%d-%d" % (self.counter, index) + bytes(size) for index, size in enumerate(sizes)]
        sequence = self.next_sequence(producer) if producer >= 0 else -1
        epoch = 0 if producer >= 0 else -1
        timestamp = NOW + self.counter * 10 + step
        data = batch(
            values, producer=producer, epoch=epoch, sequence=sequence, transactional=transactional, timestamp=timestamp
        )
        appended = self.world.append(data, verified=True)
        assert appended.base_offset == self.end()
        for index, value in enumerate(values):
            self.written.append(
                Written(
                    appended.base_offset + index,
                    value,
                    timestamp + index,
                    producer,
                    sequence + index if producer >= 0 else -1,
                    transactional,
                )
            )

    @rule(producer=PRODUCERS, gap=st.integers(1, 5))
    def append_out_of_order(self, producer: int, gap: int) -> None:
        if producer not in self.world.log.producers.entries:
            return
        open_here = producer in self.open_transactions()
        sequence = self.next_sequence(producer) + gap
        data = batch([b"never"], producer=producer, epoch=0, sequence=sequence, transactional=open_here)
        with pytest.raises(AppendRefused) as raised:
            self.world.append(data)
        assert raised.value.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(producer=PRODUCERS, committed=st.booleans())
    def mark(self, producer: int, committed: bool) -> None:
        appended = self.world.mark(producer, committed=committed)
        self.written.append(Written(appended.base_offset, b"", self.world.now_ms, producer, -1, True, committed))

    @rule()
    def sync(self) -> None:
        self.world.sync()
        self.synced = self.end()

    @rule()
    def begin_sync(self) -> None:
        self.pending = self.world.log.files_to_sync()

    @precondition(lambda self: self.pending is not None)
    @rule()
    def end_sync(self) -> None:
        assert self.pending is not None
        files, upto = self.pending
        for file in files:
            file.sync()
        self.world.log.synced(upto)  # type: ignore[arg-type]  # an Offset
        self.world.log.set_high_watermark(upto)
        self.synced = max(self.synced, upto)
        self.pending = None

    @rule()
    def checkpoint(self) -> None:
        self.world.directory.checkpoints()

    @rule()
    def roll(self) -> None:
        roll(self.world.log, self.world.now_ms)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        log = self.world.log
        offset = log.log_start_offset + int((log.high_watermark - log.log_start_offset) * share)
        log.raise_log_start(offset)
        self.start = max(self.start, offset)
        self.world.now_ms += SMALL.file_delete_delay_ms
        self.world.run_jobs()

    @rule()
    def restart(self) -> None:
        self.pending = None
        self.world.reopen(clean=True)
        assert self.world.log.log_end_offset == self.end()
        assert self.world.log.log_start_offset >= self.start
        self.synced = self.end()

    @rule()
    def kill(self) -> None:
        self.pending = None
        self.world.reopen()
        assert self.world.log.log_end_offset == self.end()
        self.start = self.world.log.log_start_offset  # it is checkpointed from time to time, as in Apache Kafka

    @rule(seed=st.integers(0, 1 << 30))
    def lose_power(self, seed: int) -> None:
        self.world.memory.crash(seed)
        self._after_crash()

    @rule(seed=st.integers(0, 1 << 30), changes=st.integers(0, 30), clean=st.booleans())
    def lose_power_while_restarting(self, seed: int, changes: int, clean: bool) -> None:
        self.world.memory.lose_power_after(changes)
        with suppress(PowerLost):
            self.world.reopen(clean=clean)
        self.world.memory.crash(seed)
        self._after_crash()

    def _after_crash(self) -> None:
        self.pending = None
        if str(PARTITION) not in self.world.files.list(""):
            assert self.synced == 0
            self.world.directory.logs.clear()
            self.world.log = self.world.directory.create(PARTITION, TOPIC_ID, self.world.config, now_ms=NOW)
        else:
            self.world.reopen()
        log = self.world.log
        assert self.synced <= log.log_end_offset <= max(self.end(), log.log_start_offset)
        self.written = [record for record in self.written if record.offset < log.log_end_offset]
        self.start = log.log_start_offset
        self.synced = max(self.synced, log.durable_offset)

    @invariant()
    def same_as_the_model(self) -> None:
        log = self.world.log
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
        watermark, log.high_watermark = log.high_watermark, log.log_end_offset
        try:
            self._check_records()
            self._check_times()
        finally:
            log.high_watermark = watermark
        transactions = self.open_transactions()
        known = {
            entry.producer_id for entry in log.producers.entries.values() if entry.transaction_first_offset is not None
        }
        assert known == set(transactions), (known, transactions, log.segments[0], log.snapshots.offsets)

    def _check_records(self) -> None:
        log = self.world.log
        start = log.log_start_offset
        expected = [record for record in self.written if record.offset >= start]
        results: list[tuple[int, bytes | None]] = []
        offset = int(start)
        while offset < log.log_end_offset:
            data = content(read_batches(log, offset, max_bytes=1 << 20))
            assert data, offset
            for position, header in iter_headers(data):
                results += [
                    (record.offset, b"" if header.is_control else record.value)
                    for record in read_records(data, position, header, 1 << 20)
                    if record.offset >= offset
                ]
                offset = header.next_offset
        assert results == [(record.offset, record.value) for record in expected]

    def _check_times(self) -> None:
        log = self.world.log
        expected = [record for record in self.written if record.offset >= log.log_start_offset]
        if not expected:
            return
        for wanted in (expected[0].timestamp, expected[-1].timestamp, expected[len(expected) // 2].timestamp + 1):
            result = found_by(search_timestamp(log, wanted))
            first = next((record for record in expected if record.timestamp >= wanted), None)
            assert (None if result is None else result.offset) == (None if first is None else first.offset)

    @invariant()
    def aborted_transactions(self) -> None:
        log = self.world.log
        if log.last_stable_offset <= log.log_start_offset:
            return
        stable = log.last_stable_offset
        offset = int(log.log_start_offset)
        result: set[tuple[int, int]] = set()
        while offset < stable:
            read = read_batches(log, offset, max_bytes=1 << 20, isolation_read_committed=True)
            result |= set(read.aborted)
            assert read.size_bytes, (offset, stable)
            for _, header in iter_headers(content(read)):
                offset = header.next_offset
        begun: dict[int, int] = {}
        expected = set()
        for record in self.written:
            if record.marker is None and record.transactional:
                begun.setdefault(record.producer, record.offset)
            elif record.marker is not None:
                first = begun.pop(record.producer, None)
                if first is not None and record.marker is False and log.log_start_offset <= first and first < stable:
                    expected.add((record.producer, first))
        assert expected <= result


LogMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLog = pytest.mark.slow(LogMachine.TestCase)
