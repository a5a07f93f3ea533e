"""Records as JSON lines. Bytes that are UTF-8 are text, others base64 under ``key_base64`` or ``value_base64``.

A download that does not have everything ends with a line of one key, ``oncelog``, that says why and where to go on.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

from oncelog.base.notation import json_text
from oncelog.client.machine.positions import Fetched
from oncelog.console.downloads.reading import Left
from oncelog.console.downloads.selection import Selection
from oncelog.console.records.decoding import Decoder
from oncelog.console.records.large_json import LARGE, JsonText, LargeBytes, is_text, json_pieces
from oncelog.console.records.record_states import ABORTED, UNREADABLE, StoredRecord, stored_records
from oncelog.console.records.temporary_files import TemporaryBytes
from oncelog.records.batch import iter_headers

MEDIA_TYPE: Final = "application/jsonl; charset=utf-8"
_RAW: Final = ("auto", "text", "hex", "integer")
_LONGEST_DECODED: Final = 4_000_000


class JsonLines:
    """A file of JSON lines, as far as it is not sent yet."""

    takes_turns = False

    def __init__(self, selection: Selection, decoder: Decoder) -> None:
        self._selection = selection
        self._decoder = decoder
        self._key_format = selection.kept.get("key_format", "auto")
        self._value_format = selection.kept.get("value_format", "auto")
        self._spool = TemporaryBytes()

    def take(self, fetched: Fetched, states: Mapping[int, str], until: int, left: Left) -> int:
        committed, wanted = self._selection.committed, self._selection.wanted
        for at, header in iter_headers(fetched.records):
            if header.is_control or header.next_offset <= fetched.position or (committed and states[at] == ABORTED):
                continue
            for record in stored_records(fetched, at, header, states[at]):
                if record.state == UNREADABLE:
                    left.note(f"{fetched.partition}, the batch at offset {record.offset}: {record.note}")
                    continue
                if record.offset < fetched.position or (wanted is not None and not wanted.is_in(record.as_record())):
                    continue
                if record.offset >= until or left.is_full():
                    return min(record.offset, until)
                left.take(1, record.size_bytes)
                row = self._row(fetched.partition.partition, record)
                in_pieces = _is_large(record) or any(isinstance(part, JsonText) for part in row.values())
                self._spool.write(chain(json_pieces(row), (b"\n",)) if in_pieces else (_dumped(row),))
        return min(fetched.next_offset, until)

    def end(self, notice: Mapping[str, Any] | None) -> None:
        """Write the last line, where there is something to say."""
        if notice is not None:
            self._spool.write((_dumped({"oncelog": notice}),))

    def written(self) -> Iterator[bytes]:
        return self._spool.taken()

    def _row(self, partition: int, one: StoredRecord) -> dict[str, Any]:
        row: dict[str, Any] = {
            "topic": self._selection.topic,
            "partition": partition,
            "offset": one.offset,
            "timestamp_ms": one.timestamp_ms,
            "timestamp_type": "append" if one.is_append_time else "create",
        }
        if not self._selection.committed:
            row["state"] = one.state
        row |= self._part(one, "key", one.key, self._key_format)
        row |= self._part(one, "value", one.value, self._value_format)
        row["headers"] = [{"key": name, **_bytes("value", value)} for name, value in one.headers]
        return row

    def _part(self, one: StoredRecord, name: str, data: bytes | None, form: str) -> dict[str, Any]:
        """A key or value; with a format that gives JSON, as that JSON, or with the reason why it is none."""
        if data is None or form in _RAW:
            return _bytes(name, data)
        decode = self._decoder.key if name == "key" else self._decoder.value
        found = decode(self._selection.topic, data, one.headers, form, _LONGEST_DECODED)
        if found.format != form or found.cut or not isinstance(found.text, str):
            return {**_bytes(name, data), f"{name}_error": found.error or f"not {form}"}
        named = {} if found.schema_id is None else {f"{name}_schema_id": found.schema_id}
        return {name: JsonText(json_text.compacted(found.text)), **named}


def _is_large(one: StoredRecord) -> bool:
    parts = (one.key, one.value, *(value for _, value in one.headers))
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
