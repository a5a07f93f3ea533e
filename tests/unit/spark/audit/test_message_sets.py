"""Segments of message formats 0 and 1, alone and before record batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.legacy.message_set.entry import Message, TimestampType
from oncelog.records.builder import build_batch
from oncelog.records.compression import Codec
from oncelog.records.record import Record
from oncelog.spark.audit.segments.batch_headers import BatchTable, Damage, read_pieces
from tests.message_sets import write


def old(first: int, count: int, codec: Codec, magic: int = 1) -> bytes:
    kind = TimestampType.CREATE_TIME if magic else TimestampType.NONE
    messages = [
        Message(number, 1000 + number if magic else -1, kind, b"k", b"v%d" % number, magic)
        for number in range(first, first + count)
    ]
    return write(messages, magic, codec)


def read(path: Path, base: int) -> tuple[list[BatchTable], list[Damage]]:
    damages: list[Damage] = []
    with path.open("rb") as file:
        pieces = list(read_pieces(file, path.stat().st_size, base, damages, check_crc=True, is_last=False))
    return pieces, damages


@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_are_opened_and_batches_may_follow(tmp_path: Path, magic: int) -> None:
    path = tmp_path / "log"
    batch = build_batch([Record(-1, 5000, None, b"new")], base_offset=118)
    path.write_bytes(old(100, 3, Codec.NONE, magic) + old(103, 15, Codec.GZIP, magic) + batch)
    (first, second), damages = read(path, 100)
    assert not damages
    assert first.base_offset.tolist() == [100, 101, 102, 103]
    assert first.last_offset.tolist() == [100, 101, 102, 117]
    assert first.record_count.tolist() == [1, 1, 1, 15]
    assert first.max_timestamp.tolist() == ([1100, 1101, 1102, 1117] if magic else [-1] * 4)
    assert first.sound.all()
    assert (first.is_message_set, second.is_message_set) == (True, False)
    assert second.base_offset.tolist() == [118]


def test_a_wrong_checksum_is_unsound_and_a_cut_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "log"
    data = bytearray(old(0, 2, Codec.NONE) + old(2, 4, Codec.GZIP) + old(6, 1, Codec.NONE))
    data[len(old(0, 2, Codec.NONE)) + 40] ^= 1
    path.write_bytes(data[:-2])
    (piece,), damages = read(path, 0)
    assert piece.sound.tolist() == [True, True, False]
    assert piece.base_offset.tolist() == [0, 1, 2]
    assert piece.last_offset.tolist() == [0, 1, 5]
    assert [(damage.kind, damage.offset) for damage in damages] == [("garbage", 6)]
