"""``log dump`` of message formats 0 and 1, also before record batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.legacy.message_set.entry import Message, TimestampType
from oncelog.records.builder import build_batch
from oncelog.records.compression import Codec
from oncelog.records.record import Record
from tests.message_sets import write
from tests.unit.cli.log.test_dump import rows


def messages(first: int, count: int) -> list[Message]:
    return [
        Message(number, 1000 + number, TimestampType.CREATE_TIME, b"k", b"v%d" % number, 1)
        for number in range(first, first + count)
    ]


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    (tmp_path / "t-0").mkdir()
    path = tmp_path / "t-0" / f"{0:020d}.log"
    batch = build_batch([Record(-1, 9, None, b"new")], base_offset=6)
    path.write_bytes(write(messages(0, 1), 1) + write(messages(1, 5), 1, Codec.GZIP) + batch)
    return path


def test_old_messages_and_batches_behind_them(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = rows(capsys, segment)
    assert [(row["type"], row.get("offset"), row["codec"], row["valid"]) for row in result] == [
        ("message", 0, "none", True),
        ("message", 5, "gzip", True),
        ("batch", None, "none", True),
    ]
    records = [row for row in rows(capsys, "-r", segment) if row["type"] == "record"]
    assert [(record["offset"], record["value"]) for record in records] == [
        *((number, f"v{number}") for number in range(6)),
        (6, "new"),
    ]
    assert [row["type"] for row in rows(capsys, "--from-offset", 6, segment)] == ["batch"]


def test_damage_is_told(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(segment.read_bytes())
    data[30] ^= 1
    segment.write_bytes(data[:60])
    result = rows(capsys, "-r", segment, code=1)
    assert [row["type"] for row in result] == ["message", "error"]
    assert result[0]["valid"] is False
