"""Rows of an entry of message formats 0 and 1 (Kafka 0.8 to 0.10): itself, and the messages in it where wanted."""

from __future__ import annotations

from collections.abc import Iterator

from oncelog.cli.log.dump.files import Row, error
from oncelog.cli.log.dump.wanted import Wanted
from oncelog.records.errors import CorruptBatch
from oncelog.records.message_set.deep import messages_of
from oncelog.records.message_set.entry import Entry, crc_matches
from oncelog.records.message_set.message import TimestampType


def message_rows(view: memoryview, entry: Entry, wanted: Wanted) -> Iterator[Row]:
    """A row of type ``message``; a compressed one has the offset of the last message in it."""
    sound = not wanted.check or crc_matches(view, entry)
    row: Row = {
        "type": "message",
        "offset": entry.offset,
        "position": entry.position,
        "size_bytes": entry.end - entry.position,
        "magic": entry.magic,
        "codec": entry.codec.name.lower(),
        "timestamp_type": _type(entry.timestamp_type),
        "timestamp": entry.timestamp,
        "crc": entry.crc,
    }
    yield {**row, "valid": sound} if wanted.check else row
    if not wanted.records or not sound:
        return
    try:
        for one in messages_of(view, entry):
            sizes = {"key_bytes": _size(one.key), "value_bytes": _size(one.value)}
            content = {"key": one.key, "value": one.value} if wanted.values else {}
            yield {"type": "record", "offset": one.offset, "timestamp": one.timestamp, **sizes, **content}
    except CorruptBatch as problem:
        yield error(f"message at offset {entry.offset}: {problem}")


def _size(field: bytes | None) -> int:
    return -1 if field is None else len(field)


def _type(kind: TimestampType) -> str:
    return {TimestampType.CREATE_TIME: "create", TimestampType.LOG_APPEND_TIME: "logappend"}.get(kind, "none")
