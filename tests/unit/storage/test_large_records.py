"""``max.decompressed.message.bytes``: at the append, at compaction and in searches by time."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.records.batch import read_header
from oncelog.records.compression import Codec
from oncelog.records.errors import RecordTooLarge, TooMuchWork
from oncelog.records.record import bodies_within
from oncelog.storage.errors import AppendRefused
from oncelog.storage.log.read import search_max_timestamp, search_timestamp
from oncelog.storage.log.record_validation import INLINE_EFFORT, validate_records
from oncelog.storage.log.rolling import roll
from oncelog.storage.log_config import StorageConfig
from tests.unit.storage.support import NOW, SMALL, World, batch, found_by, run_now

LIMIT = 100
LARGE = bytes(2 * LIMIT)
LIMITED = SMALL._replace(max_decompressed_message_bytes=LIMIT)
COMPACT = SMALL._replace(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)


def test_batches_that_cannot_exceed_the_limit_are_not_walked() -> None:
    assert list(bodies_within(LARGE, read_header(batch([LARGE])), LIMIT)) == []
    small = read_header(batch([b"v"], codec=Codec.ZSTD))
    assert list(bodies_within(LARGE, small, len(LARGE))) == []
    assert list(bodies_within(LARGE, small, len(LARGE) - 1)) == [None]


@pytest.mark.parametrize("validates_records", [True, False])
def test_a_batch_with_a_large_record_is_refused_whole(validates_records: bool) -> None:
    world = World(LIMITED, storage=StorageConfig(validates_records=validates_records))
    with pytest.raises(AppendRefused) as refused:
        world.append(batch([b"a", LARGE], codec=Codec.LZ4))
    assert (refused.value.error_code, refused.value.record_errors) == (ErrorCode.INVALID_RECORD, [])
    assert "max.decompressed.message.bytes=100" in refused.value.message
    assert world.log.log_end_offset == 0
    world.append(batch([b"a", LARGE]))
    assert world.log.log_end_offset == 2


def test_a_worker_compares_the_sizes_of_many_records() -> None:
    world = World(LIMITED._replace(max_message_bytes=1 << 20))
    data = batch([b"v"] * (INLINE_EFFORT + 1), codec=Codec.ZSTD)
    with pytest.raises(TooMuchWork):
        world.append(data, bounded=True)
    many = batch([b"v"] * 11_000 + [LARGE], codec=Codec.ZSTD)
    steps = validate_records(many, world.config, NOW, 1 << 26, "t-0")
    for _ in range(2):
        next(steps)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value.refusal.error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("dirty", [True, False], ids=["keys are read", "records are copied"])
def test_compaction_stops_at_a_large_record_until_the_limit_is_raised(dirty: bool) -> None:
    world = World(COMPACT)
    world.append(batch([LARGE], keys=[b"a"], codec=Codec.ZSTD))
    roll(world.log, NOW)
    world.sync()
    if not dirty:
        world.run_jobs()
        assert world.log.cleaned_offset == 1
    world.append(batch([b"v"], keys=[b"a"], codec=Codec.ZSTD))
    roll(world.log, NOW)
    world.sync()
    world.log.config = COMPACT._replace(max_decompressed_message_bytes=LIMIT)
    (job,) = world.due_jobs()
    with pytest.raises(RecordTooLarge):
        run_now(job)
    job.abandon()
    assert "compact" not in world.run_jobs()
    world.log.config = COMPACT._replace(max_decompressed_message_bytes=3 * LIMIT)
    assert "compact" in world.run_jobs()
    assert world.log.cleaned_offset == 2


def test_searches_by_time_raise_at_a_large_record_before_the_answer() -> None:
    world = World()
    world.append(batch([b"v", LARGE, b"v"], codec=Codec.GZIP))
    world.append(batch([b"v"], timestamp=NOW + 10, codec=Codec.GZIP))
    world.sync()
    world.log.config = LIMITED
    for timestamp, offset in ((NOW - 1, 0), (NOW, 0), (NOW + 3, 3), (NOW + 10, 3)):
        record = found_by(search_timestamp(world.log, timestamp))
        assert record is not None
        assert record.offset == offset
    assert found_by(search_timestamp(world.log, NOW + 11)) is None
    for timestamp in (NOW + 1, NOW + 2):
        with pytest.raises(RecordTooLarge):
            found_by(search_timestamp(world.log, timestamp))
    latest = found_by(search_max_timestamp(world.log))
    assert latest is not None
    assert latest.offset == 3
