"""An inspection finds in the bytes of records what reading all of them finds, and takes no others."""

from __future__ import annotations

import contextlib
import random

import pytest

from oncelog.records.batch import CorruptBatch, read_header
from oncelog.records.builder import append_record, build_batch
from oncelog.records.errors import TooMuchWork
from oncelog.records.inspection import Inspection, renumbered
from oncelog.records.record import Record, record_tails, records_in
from oncelog.records.varint import append_varint

Found = tuple[int, int, bool, bool] | None
"""Latest and earliest timestamp delta, whether keys are missing, and numbers wrong; None for corrupt records."""
_SIZES = (0, 1, 20, 57, 58, 62, 63, 64, 100, 120, 300, 8180, 8200)
_DELTAS = (0, 1, 63, 64, 5_000, 8_191, 8_192, 70_000, -1, -64, -65, -9_000, 1 << 40, -(1 << 62))


def read(data: bytes, count: int) -> Found:
    header = read_header(build_batch([], last_offset=0))._replace(record_count=count, base_timestamp=0)
    try:
        records = list(records_in(data, header))
    except CorruptBatch:
        return None
    times = [record.timestamp for record in records]
    keyless = any(record.key is None for record in records)
    return max(times), min(0, *times), keyless, [record.offset for record in records] != list(range(count))


def inspected(data: bytes, count: int, steps: random.Random) -> Found:
    inspection = Inspection(data, count)
    try:
        while inspection.number < count:
            inspection.advance(inspection.number + steps.choice((1, 7, 100, 1000)))
    except CorruptBatch:
        return None
    earliest = inspection.earliest_delta()
    return inspection.latest_delta(), earliest, inspection.keyless, inspection.misnumbered


def body(choose: random.Random) -> tuple[bytearray, int]:
    """Runs of records of one shape, of varied sizes, and single odd ones."""
    data, number, time = bytearray(), 0, choose.choice(_DELTAS)
    for _ in range(choose.randrange(1, 6)):
        key = choose.choice((None, None, b"", b"k" * choose.randrange(70)))
        headers = choose.choice(((), (), (("trace", b"x" * 55),), (("a", None), ("", b""))))
        most = choose.choice(_SIZES[:11])
        varied, late = choose.random() < 0.5, choose.random() < 0.3
        for _ in range(choose.choice((1, 5, 40, 90, 300))):
            size = choose.randrange(most + 1) if varied else most
            value = None if choose.random() < 0.01 else bytes(size)
            time = choose.choice(_DELTAS) if choose.random() < 0.01 else time + late
            append_record(data, Record(0, 0, key, value, headers), number, time)
            number += 1
        if choose.random() < 0.2:
            value = bytes(choose.choice(_SIZES))
            append_record(data, Record(0, 0, b"odd", value, (("h", value),)), number, choose.choice(_DELTAS))
            number += 1
    return data, number


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_an_inspection_finds_what_reading_finds(seed: int) -> None:
    choose = random.Random(seed)
    data, count = body(choose)
    sound = read(bytes(data), count)
    assert sound is not None
    assert inspected(bytes(data), count, choose) == sound
    assert inspected(bytes(data), count + 1, choose) is None
    assert inspected(bytes(data) + b"\0", count, choose) is None
    for _ in range(12):
        damaged = bytearray(data)
        at = choose.randrange(len(damaged))
        kind = choose.randrange(3)
        if kind == 0:
            damaged[at] = choose.randrange(256)
        elif kind == 1:
            damaged[at] ^= 1 << choose.randrange(8)
        else:
            del damaged[at]
        assert inspected(bytes(damaged), count, choose) == read(bytes(damaged), count), f"seed {seed}, byte {at}"


def test_numbers_that_are_wrong_are_made_right() -> None:
    data = bytearray()
    for offset in (0, 0, 700, 3):
        append_record(data, Record(0, 0, b"k", b"v%d" % offset, (("h", None),)), offset, offset)
    inspection = Inspection(bytes(data), 4)
    inspection.advance(4)
    assert inspection.misnumbered
    right = b"".join(renumbered(bytes(data)))
    header = read_header(build_batch([], last_offset=0))._replace(record_count=4, base_timestamp=0)
    assert [record.offset for record in records_in(right, header)] == [0, 1, 2, 3]
    assert list(record_tails(right, header)) == list(record_tails(bytes(data), header))


def test_offsets_of_three_bytes_and_runs_that_end_between_them() -> None:
    data = bytearray()
    for number in range(17_000):
        append_record(data, Record(0, 0, None, b"v" * (20 + (number == 9_000))), number, 3)
    whole = Inspection(bytes(data), 17_000)
    whole.advance(1 << 31)
    assert (whole.is_complete, whole.latest_delta(), whole.misnumbered) == (True, 3, False)


def test_a_long_record_that_looks_like_a_broken_short_one() -> None:
    body = b"\xff" + b"\xff" * 9 + b"\x01" + b"\0\1"  # attributes, a timestamp delta in ten bytes, no key
    value = bytearray()
    append_varint(value, 9000)
    body += value + bytes(9000) + b"\0"
    data = bytearray()
    append_varint(data, len(body))
    data += body
    read_back = read(bytes(data), 1)
    assert read_back is not None
    assert inspected(bytes(data), 1, random.Random(1)) == read_back


def test_effort_is_bounded() -> None:
    headers = tuple(("", None) for _ in range(200))
    data = bytearray()
    append_record(data, Record(0, 0, None, None, headers), 0, 0)
    for effort, enough in ((199, False), (200, True)):
        inspection = Inspection(bytes(data), 1, effort)
        with contextlib.nullcontext() if enough else pytest.raises(TooMuchWork):
            inspection.advance(1)
        assert inspection.is_complete is enough
    with pytest.raises(TooMuchWork):
        Inspection(bytes(data) * 3, 3, 350).advance(3)


def test_an_offset_delta_of_many_bytes_ends_where_readers_say() -> None:
    """From this number on the third byte of a good delta is no last one either."""
    number = 1 << 20
    body = bytearray()
    append_record(body, Record(0, 0, b"", b""), number, 0)
    inspection = Inspection(bytes(body), number + 1)
    inspection.number = number
    inspection.advance(number + 1)
    assert not inspection.misnumbered
    inspection = Inspection(bytes.fromhex("1000008080800000") + bytes(1), number + 1)
    inspection.number = number
    with pytest.raises(CorruptBatch):
        inspection.advance(number + 1)


def test_a_run_goes_on_over_two_million_records() -> None:
    for number in (1 << 20, 1 << 21):
        body = bytearray()
        for offset_delta in range(number - 40, number + 40):
            append_record(body, Record(0, 0, None, bytes(20)), offset_delta, 0)
        inspection = Inspection(bytes(body), number + 40)
        inspection.number = number - 40
        inspection.advance(number + 40)
        assert not inspection.misnumbered
