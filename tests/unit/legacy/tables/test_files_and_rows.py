"""Old files, planned by the driver and read by a task, without Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oncelog.legacy.message_set.entry import Message, TimestampType
from oncelog.legacy.tables.files import OldLogsError, old_files
from oncelog.legacy.tables.rows import OldRow, arrow_rows, rows_of
from oncelog.records.builder import build_batch
from oncelog.records.compression import Codec
from oncelog.records.record import Record
from oncelog.spark.table.parquet_files import table_schema
from tests.message_sets import write
from tests.old_logs import GZIP, file_path, message, message_set, write_log


def rows(directory: Path, position: int = 0) -> list[OldRow]:
    """All rows from a position on."""
    ranges = [file.since(position) for file in old_files(directory, ()) if file.end > position]
    return [row for range_ in ranges for row in rows_of(range_)]


def test_a_log_of_0_7_with_its_tail_left_out(tmp_path: Path) -> None:
    entries = [message(b"a", magic=0), message_set([message(b"b"), message(b"")], GZIP), message(b"c")]
    offsets = write_log(tmp_path / "t_1", entries, file_bytes=15, start=50, digits=11)
    last = sorted((tmp_path / "t_1").iterdir())[-1]
    last.write_bytes(last.read_bytes() + message(b"unfinished")[:-1])
    for path in (tmp_path / "t_1").iterdir():
        os.utime(path, (1_300_000_000, 1_300_000_000))
    files = old_files(tmp_path, ["t"])
    end = offsets[2] + len(entries[2])
    assert [(file.topic, file.partition, file.start, file.end) for file in files] == [
        ("t", 1, 50, offsets[2]),
        ("t", 1, offsets[2], end),
    ]
    time = 1_300_000_000_000
    assert rows(tmp_path) == [
        OldRow(None, b"a", 50, time, -1),
        OldRow(None, b"b", offsets[1], time, -1),
        OldRow(None, b"", offsets[1], time, -1),
        OldRow(None, b"c", offsets[2], time, -1),
    ]
    assert [row.value for row in rows(tmp_path, offsets[1])] == [b"b", b"", b"c"]
    assert rows(tmp_path, end) == []


def sets(directory: Path, first: int, messages: list[Message], codec: Codec, magic: int, tail: bytes = b"") -> None:
    directory.mkdir(exist_ok=True)
    (directory / f"{first:020d}.log").write_bytes(write(messages, magic, codec) + tail)


def old(offset: int, magic: int) -> Message:
    """A message of format 0 or 1."""
    kind = TimestampType.CREATE_TIME if magic else TimestampType.NONE
    key = None if offset % 3 else b"k%d" % offset
    value = None if offset % 5 == 4 else b"v%d" % offset
    return Message(offset, 1_500_000_000_000 + offset if magic else -1, kind, key, value, magic)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_formats_0_and_1(tmp_path: Path, magic: int, codec: Codec) -> None:
    first, second = (
        [old(number, magic) for number in range(100, 110)],
        [old(number, magic) for number in range(115, 120)],
    )
    sets(tmp_path / "t-0", 100, first, codec, magic)
    torn = write([old(120, magic)], magic)[:-1]
    sets(tmp_path / "t-0", 110, second, codec, magic, torn)
    files = old_files(tmp_path, ())
    assert [(file.start, file.end) for file in files] == [(100, 110), (110, 120)]
    expected = [
        OldRow(record.key, record.value, record.offset, record.timestamp if magic else None, int(record.timestamp_type))
        for record in [*first, *second]
    ]
    assert rows(tmp_path) == expected
    assert rows(tmp_path, 107) == expected[7:]


def test_the_columns_are_those_of_the_kafka_connector(tmp_path: Path) -> None:
    sets(tmp_path / "t-7", 0, [old(0, 1), old(1, 1)], Codec.NONE, 1)
    sets(tmp_path / "u-0", 0, [old(4, 0)], Codec.NONE, 0)
    schema = table_schema(include_headers=False)
    result = [
        row
        for file in old_files(tmp_path, ())
        for batch in arrow_rows(file.since(0), schema)
        for row in batch.to_pylist()
    ]
    assert [(item["topic"], item["partition"], item["offset"], item["value"]) for item in result] == [
        ("t", 7, 0, b"v0"),
        ("t", 7, 1, b"v1"),
        ("u", 0, 4, None),
    ]
    assert [item["timestamp"] and item["timestamp"].isoformat() for item in result] == [
        "2017-07-14T02:40:00+00:00",
        "2017-07-14T02:40:00.001000+00:00",
        None,
    ]


def test_room_that_was_preallocated_is_no_message(tmp_path: Path) -> None:
    sets(tmp_path / "t-0", 0, [old(0, 1)], Codec.NONE, 1, bytes(100_000))
    assert [row.offset for row in rows(tmp_path)] == [0]


def test_what_cannot_be_read_names_file_and_place(tmp_path: Path) -> None:
    offsets = write_log(tmp_path / "a" / "t-0", [message(b"a"), message(b"b"), message(b"c")])
    path = file_path(tmp_path / "a" / "t-0", 0)
    data = bytearray(path.read_bytes())
    data[offsets[2] - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(OldLogsError, match=f"{path}: offset {offsets[1]}: the checksum"):
        rows(tmp_path / "a")
    (tmp_path / "b").mkdir()
    sets(tmp_path / "b" / "t-0", 0, [old(0, 1), old(1, 1)], Codec.NONE, 1)
    path = tmp_path / "b" / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(OldLogsError, match=r"wrong checksum.*offset 1"):
        rows(tmp_path / "b")
    path.write_bytes(build_batch([Record(0, 1, None, b"x")]))
    with pytest.raises(OldLogsError, match="serve the directory with a broker"):
        rows(tmp_path / "b")
    write_log(tmp_path / "c" / "t-0", [message(b"a"), message(b"b")], file_bytes=11)
    first = file_path(tmp_path / "c" / "t-0", 0)
    first.write_bytes(first.read_bytes()[:-1])
    with pytest.raises(OldLogsError, match="unfinished entry"):
        rows(tmp_path / "c")
    first.write_bytes(b"")
    with pytest.raises(OldLogsError, match="the file ends"):
        rows(tmp_path / "c")


def test_directories_without_old_logs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OldLogsError, match="no directories NAME-N"):
        old_files(tmp_path, ())
    write_log(tmp_path / "t-0", [message(b"a")])
    with pytest.raises(OldLogsError, match="has no log u; it has t"):
        old_files(tmp_path, ["u"])


def test_entries_larger_than_what_is_read_at_once(tmp_path: Path) -> None:
    large = os.urandom(6 << 20)
    write_log(tmp_path / "t-0", [message(b"a"), message(large), message(b"b")])
    assert [row.value for row in rows(tmp_path)] == [b"a", large, b"b"]
    sets(tmp_path / "u-0", 0, [Message(0, 1, TimestampType.CREATE_TIME, None, large, 1), old(1, 1)], Codec.NONE, 1)
    assert [row.value for row in rows(tmp_path / "u-0")] == [large, b"v1"]
