"""Producer state: sequences, epochs, duplicates, transactions and the first unstable offset."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.units import INT16_MAX, INT32_MAX
from oncelog.core.producers.checks import ProducerRefusal
from oncelog.core.producers.entry import BATCHES_KEPT
from oncelog.core.producers.state import ProducerState
from oncelog.records.batch import BatchHeader, read_header
from oncelog.records.builder import build_batch, end_transaction_marker
from oncelog.records.record import Record


def data(
    sequence: int, *, count: int = 1, epoch: int = 0, producer: int = 7, transactional: bool = False
) -> BatchHeader:
    records = [Record(-1, 100, b"k", b"v")] * count
    return read_header(
        build_batch(
            records,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


class Partition:
    """Appends to a state as a log does, at rising offsets."""

    def __init__(self) -> None:
        self.state = ProducerState()
        self.end = 0

    def append(self, header: BatchHeader) -> int:
        update = self.state.prepare_data(header, self.end)
        self.state.commit(update)
        offset = self.end
        self.end += header.last_offset_delta + 1
        return offset

    def refused(self, header: BatchHeader) -> ErrorCode:
        before = dict(self.state.entries)
        with pytest.raises(ProducerRefusal) as raised:
            self.state.prepare_data(header, self.end)
        assert self.state.entries == before
        return raised.value.error_code

    def mark(
        self, *, epoch: int = 0, producer: int = 7, committed: bool = True, coordinator_epoch: int = 0, version: int = 0
    ) -> int | None:
        marker = end_transaction_marker(
            producer_id=producer,
            producer_epoch=epoch,
            committed=committed,
            coordinator_epoch=coordinator_epoch,
            timestamp=200,
        )
        update = self.state.prepare_marker(
            read_header(marker),
            self.end,
            committed=committed,
            coordinator_epoch=coordinator_epoch,
            timestamp=200,
            transaction_version=version,
        )
        self.end += 1
        self.state.commit(update)
        return None if update.completed is None else self.state.stable_after(update.completed)


def test_sequences_follow_each_other() -> None:
    partition = Partition()
    partition.append(data(0, count=3))
    partition.append(data(3))
    assert partition.refused(data(5)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.refused(data(0)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    partition.append(data(4))


def test_a_producer_nobody_knows_may_begin_anywhere() -> None:
    partition = Partition()
    partition.append(data(41))
    partition.append(data(42))


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one() -> None:
    partition = Partition()
    partition.append(data(0, epoch=3))
    assert partition.refused(data(1, epoch=4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    partition.append(data(0, epoch=4))
    assert partition.refused(data(1, epoch=3)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.state.duplicate(data(0, epoch=3)) is None


def test_a_duplicate_answers_the_original_offsets() -> None:
    partition = Partition()
    offsets = [partition.append(data(2 * number, count=2)) for number in range(8)]
    for number, offset in enumerate(offsets):
        duplicate = partition.state.duplicate(data(2 * number, count=2))
        if number < 8 - BATCHES_KEPT:
            assert duplicate is None
        else:
            assert duplicate is not None
            assert (duplicate.first_offset, duplicate.last_offset, duplicate.timestamp) == (offset, offset + 1, 100)
    assert partition.state.duplicate(data(14, count=1)) is None
    assert partition.state.duplicate(data(14, count=2, producer=8)) is None


def test_sequences_wrap_to_zero_and_duplicates_are_found_across_the_wrap() -> None:
    partition = Partition()
    partition.append(data(INT32_MAX - 1))
    wrapping = data(INT32_MAX, count=3)
    offset = partition.append(wrapping)
    assert wrapping.last_sequence == 1
    duplicate = partition.state.duplicate(wrapping)
    assert duplicate is not None
    assert (duplicate.first_sequence, duplicate.first_offset) == (INT32_MAX, offset)
    partition.append(data(2))
    exact = Partition()
    exact.append(data(INT32_MAX))
    exact.append(data(0))


def test_the_first_unstable_offset_follows_the_oldest_open_transaction() -> None:
    partition = Partition()
    partition.append(data(0))
    assert partition.state.first_unstable_offset() is None
    partition.append(data(0, producer=1, transactional=True))
    partition.append(data(0, producer=2, transactional=True))
    partition.append(data(1, producer=1, transactional=True))
    assert partition.state.first_unstable_offset() == 1
    assert partition.mark(producer=1, committed=False) == 2
    assert partition.state.first_unstable_offset() == 1, "its marker is not below the high watermark"
    partition.state.high_watermark_moved(4)
    assert partition.state.first_unstable_offset() == 1
    partition.state.high_watermark_moved(5)
    assert partition.state.first_unstable_offset() == 2
    assert partition.mark(producer=2) == 6
    partition.state.high_watermark_moved(6)
    assert partition.state.first_unstable_offset() is None


def test_plain_data_is_refused_while_a_transaction_is_open() -> None:
    partition = Partition()
    partition.append(data(0, transactional=True))
    assert partition.refused(data(1)) == ErrorCode.INVALID_TXN_STATE
    partition.mark()
    partition.append(data(1))


def test_a_marker_without_data_only_moves_the_epoch() -> None:
    partition = Partition()
    assert partition.mark(epoch=5) is None
    assert partition.state.entries[7].epoch == 5
    assert partition.refused(data(0, epoch=4)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.refused(data(9, epoch=5)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(
    ("version", "epoch", "open_transaction", "accepted"),
    [
        (0, 3, True, True),
        (0, 2, True, False),
        (1, 3, True, True),
        (2, 3, True, False),
        (2, 4, True, True),
        (2, 3, False, True),
        (2, 2, False, False),
        (2, INT16_MAX, True, True),
    ],
)
def test_a_markers_epoch(version: int, epoch: int, open_transaction: bool, accepted: bool) -> None:
    partition = Partition()
    current = INT16_MAX if epoch == INT16_MAX else 3
    partition.append(data(0, epoch=current, transactional=open_transaction))
    if accepted:
        partition.mark(epoch=epoch, version=version)
        return
    with pytest.raises(ProducerRefusal) as raised:
        partition.mark(epoch=epoch, version=version)
    assert raised.value.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_older_coordinator_is_fenced() -> None:
    partition = Partition()
    partition.append(data(0, transactional=True))
    partition.mark(coordinator_epoch=5)
    partition.append(data(1, transactional=True))
    with pytest.raises(ProducerRefusal) as raised:
        partition.mark(coordinator_epoch=4)
    assert raised.value.error_code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    partition.mark(coordinator_epoch=6)


def test_idle_producers_are_forgotten_but_not_open_transactions() -> None:
    partition = Partition()
    partition.append(data(0))
    partition.append(data(0, producer=8, transactional=True))
    assert partition.state.expire(now_ms=1099, expiration_ms=1000) == 0
    assert partition.state.expire(now_ms=1100, expiration_ms=1000) == 1
    assert list(partition.state.entries) == [8]
    partition.append(data(33))
