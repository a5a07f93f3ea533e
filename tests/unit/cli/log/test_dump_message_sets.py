"""``log dump`` of message formats 0 and 1, also before record batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oncelog.cli.main import invoke
from oncelog.legacy.message_set.entry import Message, TimestampType
from oncelog.records.builder import build_batch
from oncelog.records.compression import Codec
from oncelog.records.record import Record
from tests.message_sets import write


def rows(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> list[dict[str, Any]]:
    assert invoke(["log", "dump", "--json", *map(str, arguments)]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def messages(first: int, count: int) -> list[Message]:
    return [
        Message(one, 1000 + one, TimestampType.CREATE_TIME, b"k", b"v%d" % one, 1)
        for one in range(first, first + count)
    ]


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    (tmp_path / "t-0").mkdir()
    path = tmp_path / "t-0" / f"{0:020d}.log"
    batch = build_batch([Record(-1, 9, None, b"new")], base_offset=6)
    path.write_bytes(write(messages(0, 1), 1) + write(messages(1, 5), 1, Codec.GZIP) + batch)
    return path


def test_old_messages_and_batches_behind_them(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, segment)
    assert [(one["type"], one.get("offset"), one["codec"], one["valid"]) for one in found] == [
        ("message", 0, "none", True),
        ("message", 5, "gzip", True),
        ("batch", None, "none", True),
    ]
    records = [one for one in rows(capsys, "-r", segment) if one["type"] == "record"]
    assert [(one["offset"], one["value"]) for one in records] == [*((one, f"v{one}") for one in range(6)), (6, "new")]
    assert [one["type"] for one in rows(capsys, "--from-offset", 6, segment)] == ["batch"]


def test_damage_is_told(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(segment.read_bytes())
    data[30] ^= 1
    segment.write_bytes(data[:60])
    found = rows(capsys, "-r", segment, code=1)
    assert [one["type"] for one in found] == ["message", "error"]
    assert found[0]["valid"] is False
