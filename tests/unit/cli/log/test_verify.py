"""``log verify`` names the batches that an older version took as they came."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oncelog.cli.main import invoke
from oncelog.records.batch import MAX_TIMESTAMP_POSITION
from oncelog.records.builder import build_batch, seal
from oncelog.records.compression import Codec
from oncelog.records.record import Record

TWO = [Record(-1, 1000, b"k", b"v" * 20), Record(-1, 1005, None, None, (("h", b"x"),))]


def verified(capsys: pytest.CaptureFixture[str], path: Path, *batches: bytes, code: int) -> list[dict[str, Any]]:
    segment = path / "t-0" / "00000000000000000000.log"
    segment.parent.mkdir(exist_ok=True)
    segment.write_bytes(b"".join(batches))
    assert invoke(["log", "verify", "--json", str(path)]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def changed(batch: bytearray, position: int, value: int, size: int = 1) -> bytes:
    batch[position : position + size] = value.to_bytes(size, "big", signed=value < 0)
    seal(batch)
    return bytes(batch)


def test_sound_batches_have_no_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches = [
        bytes(build_batch(TWO, codec=Codec.LZ4)),
        bytes(build_batch([], base_offset=2, last_offset=4, max_timestamp=7)),
        bytes(build_batch([TWO[0]._replace(offset=6)], base_offset=5, last_offset=8)),
        bytes(build_batch(TWO, base_offset=9, log_append_time_ms=3)),
    ]
    assert verified(capsys, tmp_path, *batches, code=0) == []
    assert invoke(["log", "verify", str(tmp_path)]) == 0
    assert "4 batches in 1 segments: 0 damaged, 0 with a wrong largest timestamp" in capsys.readouterr().out


def test_each_problem_is_named_with_its_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hiding = changed(build_batch(TWO, codec=Codec.ZSTD), MAX_TIMESTAMP_POSITION, -1, 8)
    fewer = bytearray(build_batch([TWO[0]], base_offset=2, last_offset=3))
    fewer = bytearray(changed(fewer, 57, 2, 4))
    flipped = build_batch(TWO, base_offset=4)
    flipped[-1] ^= 1
    misnumbered = changed(build_batch(TWO, base_offset=6), 61 + 3, 4)
    whole = build_batch(TWO, base_offset=8)
    batches = [hiding, bytes(fewer), bytes(flipped), misnumbered, bytes(whole), bytes(whole[:-1])]
    result = verified(capsys, tmp_path, *batches, code=1)
    assert [(row["base_offset"], row["hides_records"]) for row in result] == [
        (0, True),
        (2, False),
        (4, False),
        (6, False),
        (10, False),
    ]
    assert result[0]["problem"] == "the header's largest timestamp is -1, the records' 1005"
    assert "checksum" in result[2]["problem"]
    assert "do not follow" in result[3]["problem"]


def test_a_path_without_segments_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["log", "verify", str(tmp_path)]) != 0
    assert "has no log segments" in capsys.readouterr().err
