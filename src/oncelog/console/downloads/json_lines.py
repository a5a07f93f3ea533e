"""Records as JSON lines. UTF-8 bytes are text, others base64 under ``key_base64`` or ``value_base64``.

An incomplete download ends with a line of one key, ``oncelog``, with the reason and where to continue.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

from oncelog.base.notation import json_text
from oncelog.client.machine.positions import Fetched
from oncelog.console.downloads.reading import Remaining
from oncelog.console.downloads.selection import Selection
from oncelog.console.records.decoding import Decoder
from oncelog.console.records.large_json import LARGE, JsonText, LargeBytes, is_text, json_pieces
from oncelog.console.records.record_states import ABORTED, UNREADABLE, StoredRecord, stored_records
from oncelog.console.records.temporary_files import TemporaryBytes
from oncelog.records.batch import iter_headers

MEDIA_TYPE: Final = "application/jsonl; charset=utf-8"
_RAW: Final = ("auto", "text", "hex", "integer")
_MAX_DECODED_LENGTH: Final = 4_000_000


class JsonLines:
    needs_lock = False

    def __init__(self, selection: Selection, decoder: Decoder) -> None:
        self._selection = selection
        self._decoder = decoder
        self._key_format = selection.kept.get("key_format", "auto")
        self._value_format = selection.kept.get("value_format", "auto")
        self._buffer = TemporaryBytes()

    def take(self, fetched: Fetched, states: Mapping[int, str], until: int, remaining: Remaining) -> int:
        committed, record_filter = self._selection.committed, self._selection.record_filter
        for at, header in iter_headers(fetched.records):
            if header.is_control or header.next_offset <= fetched.position or (committed and states[at] == ABORTED):
                continue
            for record in stored_records(fetched, at, header, states[at]):
                if record.state == UNREADABLE:
                    remaining.add_unreadable(f"{fetched.partition}, the batch at offset {record.offset}: {record.note}")
                    continue
                if record.offset < fetched.position or not (
                    record_filter.allows(record.state) and record_filter.matches(record.as_record())
                ):
                    continue
                if record.offset >= until or remaining.is_full():
                    return min(record.offset, until)
                remaining.take(1, record.size_bytes)
                row = self._row(fetched.partition.partition, record)
                in_pieces = _is_large(record) or any(isinstance(part, JsonText) for part in row.values())
                self._buffer.write(chain(json_pieces(row), (b"\n",)) if in_pieces else (_dumped(row),))
        return min(fetched.next_offset, until)

    def end(self, notice: Mapping[str, Any] | None) -> None:
        if notice is not None:
            self._buffer.write((_dumped({"oncelog": notice}),))

    def written(self) -> Iterator[bytes]:
        return self._buffer.drain()

    def _row(self, partition: int, record: StoredRecord) -> dict[str, Any]:
        row: dict[str, Any] = {
            "topic": self._selection.topic,
            "partition": partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "timestamp_type": "append" if record.is_append_time else "create",
        }
        if not self._selection.committed:
            row["state"] = record.state
        row |= self._part(record, "key", record.key, self._key_format)
        row |= self._part(record, "value", record.value, self._value_format)
        row["headers"] = [{"key": name, **_bytes("value", value)} for name, value in record.headers]
        return row

    def _part(self, record: StoredRecord, name: str, data: bytes | None, form: str) -> dict[str, Any]:
        """A key or value: as JSON if the format decodes to JSON, else as bytes with the reason."""
        if data is None or form in _RAW:
            return _bytes(name, data)
        decode = self._decoder.key if name == "key" else self._decoder.value
        shown = decode(self._selection.topic, data, record.headers, form, _MAX_DECODED_LENGTH)
        if shown.format != form or shown.cut or not isinstance(shown.text, str):
            return {**_bytes(name, data), f"{name}_error": shown.error or f"not {form}"}
        named = {} if shown.schema_id is None else {f"{name}_schema_id": shown.schema_id}
        return {name: JsonText(json_text.compacted(shown.text)), **named}


def _is_large(record: StoredRecord) -> bool:
    parts = (record.key, record.value, *(value for _, value in record.headers))
    return any(part is not None and len(part) >= LARGE for part in parts)


def _bytes(name: str, data: bytes | None) -> dict[str, Any]:
    if data is None:
        return {name: None}
    if len(data) >= LARGE:
        text = is_text(data)
        return {name if text else f"{name}_base64": LargeBytes(data, is_text=text)}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _dumped(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace") + b"\n"
