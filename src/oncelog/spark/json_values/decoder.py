"""Decodes the JSON values of the source's record batches, in the task that read them.

A row is decoded exactly, or ``_bad`` has a reason and ``value`` its bytes, which otherwise are not sent to Spark. A
null value (a tombstone) is not a bad row. ``other_fields`` keeps fields without a column as a JSON object with numbers
as written, and whole a field of a STRUCT column that contains something the column lacks.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from oncelog.spark.json_values.decoding import BAD, OTHER_FIELDS, TIME, JsonDecoding
from oncelog.spark.json_values.documents import NotJson, parse, text_of
from oncelog.spark.json_values.kinds import Kind, NotOfType, kind_of
from oncelog.spark.json_values.times import Path, micros_of

_NONE_TYPE: Final = type(None)
_TIMESTAMP: Final = pa.timestamp("us", "UTC")


class JsonDecoder:
    """Decodes batches. Raises OptionError for column types that JSON values cannot be decoded into."""

    def __init__(self, decoding: JsonDecoding) -> None:
        self.decoding = decoding
        self.kinds = [
            (field.name, field.dataType.simpleString(), kind_of(field.dataType, field.name))
            for field in decoding.fields
        ]
        self.path = None if decoding.time_path is None else Path(decoding.time_path)

    def decode(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        with _collector_paused():
            return self._decode(rows)

    def _decode(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        value_index = rows.schema.get_field_index("value")
        documents = _Documents(self, rows.column(value_index))
        arrays, names = list(rows.columns), list(rows.schema.names)
        for name, data_type, kind in self.kinds:
            arrays.append(documents.column(name, data_type, kind))
            names.append(name)
        if self.decoding.columns is not None:
            arrays.append(documents.other_fields())
            names.append(OTHER_FIELDS)
        if self.path is not None:
            arrays.append(documents.times(self.path, rows.column("timestamp")))
            names.append(TIME)
        bad = documents.reasons()
        if self.decoding.columns is not None:
            # A decoded row's bytes are not needed any longer; sending them to Spark would cost.
            arrays[value_index] = pc.if_else(pc.is_valid(bad), rows.column(value_index), pa.scalar(None, pa.binary()))
        return pa.RecordBatch.from_arrays([*arrays, bad], names=[*names, BAD])


@contextmanager
def _collector_paused() -> Iterator[None]:
    # Pause the garbage collector, which would use a quarter of the time to revisit a batch's documents again and again
    # and find nothing: documents are trees.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Documents:
    def __init__(self, decoder: JsonDecoder, values: Any) -> None:
        self._decoder, self._decoding = decoder, decoder.decoding
        self._reasons: dict[int, list[str]] = {}
        self._documents: list[Any] = [None] * len(values)
        self._has_value: list[bool] = values.is_valid().to_pylist()
        for index, text in enumerate(self._texts(values)):
            if text is not None:
                self._read(index, text)

    def _texts(self, values: Any) -> Sequence[str | None]:
        if self._decoding.skip_bytes:
            values = pc.binary_slice(values, self._decoding.skip_bytes)
        try:
            return list(values.cast(pa.string()).to_pylist())
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return [self._text(index, value) for index, value in enumerate(values.to_pylist())]

    def _text(self, index: int, value: bytes | None) -> str | None:
        try:
            return None if value is None else value.decode()
        except UnicodeDecodeError as error:
            self._add_reason(index, f"not JSON: byte {error.start + 1} is not UTF-8")
            return None

    def _read(self, index: int, text: str) -> None:
        try:
            document = parse(text)
        except NotJson as error:
            self._add_reason(index, f"not JSON: {error}")
            return
        if self._decoding.columns is not None and type(document) is not dict:
            self._add_reason(index, "not a JSON object of this schema")
            return
        self._documents[index] = document

    def _add_reason(self, index: int, reason: str) -> None:
        self._reasons.setdefault(index, []).append(reason)

    def column(self, name: str, data_type: str, kind: Kind) -> Any:
        values = [None if document is None else document.get(name) for document in self._documents]
        if kind.native_types and set(map(type, values)) <= {*kind.native_types, _NONE_TYPE}:
            try:
                return pa.array(values, kind.arrow)
            except (pa.ArrowInvalid, OverflowError):  # a number is out of range; the loop below finds it
                pass
        for index, value in enumerate(values):
            if value is not None:
                try:
                    values[index] = kind.convert(value)
                except (NotOfType, NotJson, RecursionError):
                    values[index] = None
                    self._add_reason(index, f"field {name} is not {data_type}")
        return pa.array(values, kind.arrow)

    def other_fields(self) -> Any:
        names = frozenset(name for name, _, _ in self._decoder.kinds)
        inner = [
            (name, kind.has_extra_fields) for name, _, kind in self._decoder.kinds if kind.has_extra_fields is not None
        ]
        texts: list[str | None] = [None] * len(self._documents)
        for index, document in enumerate(self._documents):
            if document is None or index in self._reasons:
                continue
            others = {} if document.keys() <= names else {k: v for k, v in document.items() if k not in names}
            for name, has_extra_fields in inner:
                value = document.get(name)
                if value is not None and has_extra_fields(value):
                    others[name] = value
            if others:
                texts[index] = self._text_of(index, others)
            elif all(value is None for value in document.values()):
                # Distinguishes an object without content from a tombstone.
                texts[index] = "{}"
        return pa.array(texts, pa.string())

    def _text_of(self, index: int, others: dict[str, Any]) -> str | None:
        try:
            return text_of(others)
        except NotJson as error:
            self._add_reason(index, f"not JSON: {error}")
            return None

    def times(self, path: Path, timestamps: Any) -> Any:
        """The time in each document; for a null value, the record's timestamp."""
        micros: list[int | None] = [None] * len(self._documents)
        record_times = timestamps.cast(pa.int64()).to_pylist()
        for index, document in enumerate(self._documents):
            if not self._has_value[index]:
                micros[index] = record_times[index]
            elif index not in self._reasons:
                value = path.find(document)
                micros[index] = micros_of(value)
                if value is None:
                    self._add_reason(index, f"no time at {self._decoding.time_path}")
                elif micros[index] is None:
                    self._add_reason(
                        index, f"the value at {self._decoding.time_path} is not a time in the years 1 to 9999"
                    )
        return pa.array(micros, _TIMESTAMP)

    def reasons(self) -> Any:
        """The reason of each bad row; null for good rows."""
        texts: list[str | None] = [None] * len(self._documents)
        for index, reasons in self._reasons.items():
            texts[index] = "; ".join(reasons)
        return pa.array(texts, pa.string())
