"""``log dump`` of a 0.7 log: entries, messages, damaged places."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.cli.main import invoke
from tests.old_logs import GZIP, SNAPPY, file_path, message, message_set, write_log
from tests.unit.cli.log.test_dump import rows

ENTRIES = [message(b"a", magic=0), message_set([message(b"b"), message(b"")], GZIP), message(b"\xff")]


def test_entries_shallow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offsets = write_log(tmp_path / "t-0", ENTRIES, start=100)
    result = rows(capsys, tmp_path)
    assert [(row["offset"], row["position"], row["magic"], row["codec"], row["valid"]) for row in result] == [
        (100, 0, 0, "none", True),
        (offsets[1], offsets[1] - 100, 1, "gzip", True),
        (offsets[2], offsets[2] - 100, 1, "none", True),
    ]
    assert result[0]["payload_bytes"] == 1
    assert result[0]["size_bytes"] == 10


def test_messages_deep_have_the_offset_of_their_outer_entry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offsets = write_log(tmp_path / "t_0", ENTRIES, digits=11)
    result = [row for row in rows(capsys, "-r", tmp_path) if row["type"] == "record"]
    assert [(item["offset"], item["value"], item["value_bytes"]) for item in result] == [
        (offsets[0], "a", 1),
        (offsets[1], "b", 1),
        (offsets[1], "", 0),
        (offsets[2], "/w==", 1),
    ]
    result = [row for row in rows(capsys, "-r", "--no-values", tmp_path) if row["type"] == "record"]
    assert "value" not in result[0]


def test_damaged_places_are_rows_with_their_offset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offsets = write_log(tmp_path / "t-0", [*ENTRIES, message_set([message(b"c")], SNAPPY), message(b"d")])
    path = file_path(tmp_path / "t-0", 0)
    data = bytearray(path.read_bytes())
    data[offsets[1] + 20] ^= 1
    path.write_bytes(data + message(b"unfinished")[:-1])
    result = rows(capsys, "-r", path, code=1)
    assert [row["value"] for row in result if row["type"] == "record"] == ["a", "/w==", "c", "d"]
    errors = [row for row in result if row["type"] == "error"]
    assert [(error["offset"], error["size_bytes"]) for error in errors] == [
        (offsets[1], offsets[2] - offsets[1]),
        (len(data), 19),
    ]
    assert "checksum" in errors[0]["error"]
    assert "unfinished" in errors[1]["error"]


def test_a_range_of_offsets_and_of_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offsets = write_log(tmp_path / "t-0", ENTRIES)
    result = rows(capsys, "--from-offset", offsets[1], "--to-offset", offsets[2], tmp_path)
    assert [row["offset"] for row in result] == [offsets[1]]
    assert len(rows(capsys, "--only", "kafka", tmp_path)) == 3
    assert invoke(["log", "dump", "--only", "index", str(tmp_path)]) == 1


def test_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(tmp_path / "t-0", ENTRIES[:1])
    assert invoke(["log", "dump", "-r", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "entry offset=0 position=0 size_bytes=10 magic=0 codec=none" in out
    assert "record offset=0 value_bytes=1 value='a'" in out
