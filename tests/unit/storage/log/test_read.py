"""Reading: by offset, within limits, and by time."""

from __future__ import annotations

import pytest

from oncelog.records.batch import iter_headers, read_header
from oncelog.records.compression import Codec
from oncelog.storage.errors import OffsetOutOfRange
from oncelog.storage.log.append import append_batch
from oncelog.storage.log.read import read_batches, search_max_timestamp, search_timestamp
from tests.unit.storage.support import NOW, World, batch, content, found_by, records


def filled(count: int = 30) -> World:
    world = World()
    for number in range(count):
        world.append(batch([b"%d" % number] * 3, timestamp=NOW + 10 * number))
    world.sync()
    return world


def test_a_read_begins_with_the_batch_that_holds_the_offset() -> None:
    world = filled()
    for log in (world.log, world.reopen(clean=True)):
        for offset in range(90):
            data = content(read_batches(log, offset, max_bytes=1))
            header = read_header(data)
            assert header.base_offset <= offset <= header.last_offset
            assert len(data) == header.size_bytes


def test_at_least_one_batch_only_when_asked_for() -> None:
    log = filled().log
    one = read_batches(log, 0, max_bytes=1, minimum_one=True).size_bytes
    cut = read_batches(log, 0, max_bytes=one - 1, minimum_one=False)
    assert (cut.size_bytes, cut.first_batch_cut) == (one - 1, True)
    assert not read_batches(log, 0, max_bytes=one + 1, minimum_one=False).first_batch_cut
    assert read_batches(log, 0, max_bytes=0, minimum_one=False).chunks == []
    assert read_batches(log, 0, max_bytes=2 * one + 5).size_bytes == 2 * one + 5


def test_nothing_is_read_beyond_the_high_watermark() -> None:
    world = World()
    for number in range(10):
        world.append(batch([b"x"], timestamp=NOW + number))
    assert read_batches(world.log, 0, max_bytes=10_000).size_bytes == 0
    for high_watermark in range(1, 11):
        assert world.log.set_high_watermark(high_watermark)
        read = read_batches(world.log, 0, max_bytes=10_000)
        bases = [header.base_offset for _, header in iter_headers(content(read))]
        assert bases == list(range(min(high_watermark, bases[-1] + 1)))
        assert [record.offset for record in records(world.log)] == list(range(high_watermark))
    assert not world.log.set_high_watermark(3)
    assert not world.log.set_high_watermark(99)


def test_offsets_outside_the_log_are_refused() -> None:
    log = filled().log
    log.raise_log_start(50)
    assert read_batches(log, 90, max_bytes=10).size_bytes == 0
    for offset in (-1, 0, 49, 91):
        with pytest.raises(OffsetOutOfRange) as raised:
            read_batches(log, offset, max_bytes=10)
        assert (raised.value.log_start_offset, raised.value.log_end_offset) == (50, 90)
    log.raise_log_start(10)
    assert log.log_start_offset == 50


def test_a_range_stays_readable_while_its_segment_goes() -> None:
    world = filled()
    read = read_batches(world.log, 0, max_bytes=500)
    before = content(read)
    world.log.raise_log_start(90)
    world.run_jobs()
    world.now_ms += world.config.file_delete_delay_ms
    assert world.run_jobs() == ["delete"]
    assert content(read) == before
    assert world.names(".deleted") == []


def test_read_committed_stops_at_the_first_open_transaction() -> None:
    world = World()
    world.append(batch([b"x"]))
    world.append(batch([b"a"], producer=1, epoch=0, sequence=0, transactional=True), verified=True)
    world.append(batch([b"b"], producer=2, epoch=0, sequence=0, transactional=True), verified=True)
    world.sync()
    assert world.log.last_stable_offset == 1
    world.mark(1, committed=False)
    assert world.log.last_stable_offset == 1, "the marker is above the high watermark"
    world.sync()
    assert world.log.last_stable_offset == 2
    world.mark(2, committed=True)
    world.sync()
    assert world.log.last_stable_offset == 5
    read = read_batches(world.log, 0, max_bytes=10_000, isolation_read_committed=True)
    assert read.aborted == [(1, 1)]
    assert read_batches(world.log, 4, max_bytes=10_000, isolation_read_committed=True).aborted == []
    assert read_batches(world.log, 0, max_bytes=10_000).aborted == []


def test_aborted_transactions_that_span_segments_are_told_for_every_part() -> None:
    world = World()
    for number in range(12):
        data = batch([bytes(200)], producer=1, epoch=0, sequence=number, transactional=True)
        world.append(data, verified=True)
    world.mark(1, committed=False)
    world.sync()
    assert len(world.log.segments) > 3
    for log in (world.log, world.reopen(clean=True)):
        for offset in range(12):
            assert read_batches(log, offset, max_bytes=300, isolation_read_committed=True).aborted == [(1, 0)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_by_time_exact_to_the_record(codec: Codec) -> None:
    world = World()
    for number in range(20):
        world.append(batch([b"x"] * 5, timestamp=NOW + 100 * number, codec=codec))
    world.sync()
    for log in (world.log, world.reopen(clean=True), world.reopen()):
        for number in range(20):
            for index in range(5):
                result = found_by(search_timestamp(log, NOW + 100 * number + index))
                assert result is not None
                assert (result.offset, result.timestamp) == (5 * number + index, NOW + 100 * number + index)
            following = found_by(search_timestamp(log, NOW + 100 * number + 50))
            assert (following.offset if following else 100) == 5 * number + 5
        first = found_by(search_timestamp(log, 0))
        assert first is not None
        assert (first.offset, first.leader_epoch) == (0, 0)
        latest = found_by(search_max_timestamp(log))
        assert latest is not None
        assert (latest.offset, latest.timestamp) == (99, NOW + 1904)


def test_times_before_the_log_start_do_not_count() -> None:
    world = World()
    for timestamp in (NOW + 500, NOW, NOW + 400):
        world.append(batch([b"x"], timestamp=timestamp))
    world.sync()
    world.log.raise_log_start(1)
    result = found_by(search_timestamp(world.log, NOW + 300))
    assert result is not None
    assert result.offset == 2
    assert found_by(search_max_timestamp(World().log)) is None
    assert found_by(search_timestamp(World().log, 0)) is None


def test_leader_epochs_say_where_each_ended() -> None:
    world = World()
    for epoch in (0, 0, 3, 5, 5):
        append_batch(world.log, batch([b"x"] * 2), now_ms=NOW, leader_epoch=epoch)
    for log in (world.log, world.reopen(), world.reopen(clean=True)):
        answers = {epoch: log.epoch_end_offset(epoch, 5) for epoch in (0, 1, 3, 4, 5, 6, -1)}
        assert answers == {0: (0, 4), 1: (0, 4), 3: (3, 6), 4: (3, 6), 5: (5, 10), 6: (-1, -1), -1: (-1, -1)}
        assert [log.epoch_of(offset) for offset in (0, 3, 4, 6, 9)] == [0, 0, 3, 5, 5]
    world.log.set_high_watermark(10)
    world.log.raise_log_start(5)
    assert world.log.epoch_end_offset(0, 5) == (0, 5)
    assert world.log.epoch_end_offset(3, 5) == (3, 6)


def test_the_leaders_epoch_is_known_before_anything_is_written_in_it() -> None:
    world = World()
    assert [world.log.epoch_end_offset(epoch, 4) for epoch in (0, 3, 4, 5)] == [(0, 0), (3, 0), (4, 0), (-1, -1)]
    append_batch(world.log, batch([b"x"] * 2), now_ms=NOW, leader_epoch=4)
    assert [world.log.epoch_end_offset(epoch, 7) for epoch in (4, 5, 7, 8)] == [(4, 2), (4, 2), (7, 2), (-1, -1)]
    assert world.log.epoch_end_offset(-1, 7) == (-1, -1)
    assert World().log.epoch_end_offset(0, -1) == (-1, -1)
