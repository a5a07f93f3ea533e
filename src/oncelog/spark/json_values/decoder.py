"""Record batches of the source with their JSON values decoded, in the task that has read them.

The rule: a row is decoded exactly, or has a reason in ``_bad`` and its bytes in ``value``. Rows without a reason need
their bytes no more, so these are not sent on to Spark. A null value (a tombstone) is no bad row.

Fields that no column is for are kept in ``other_fields``, a JSON object with numbers as they were written. A field
of a STRUCT column with something inside that the column lacks is in it as a whole. An object of which nothing would be
left is there as ``{}``, which tells it from a tombstone.
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
    """Decodes batches. Raises OptionError for columns of types that JSON values are not decoded into."""

    def __init__(self, decoding: JsonDecoding) -> None:
        self.decoding = decoding
        self.kinds = [
            (field.name, field.dataType.simpleString(), kind_of(field.dataType, field.name))
            for field in decoding.fields
        ]
        self.path = None if decoding.time_path is None else Path(decoding.time_path)

    def decode(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with the columns that the decoding adds."""
        with _collector_paused():
            return self._decode(rows)

    def _decode(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        at = rows.schema.get_field_index("value")
        documents = _Documents(self, rows.column(at))
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
            arrays[at] = pc.if_else(pc.is_valid(bad), rows.column(at), pa.scalar(None, pa.binary()))
        return pa.RecordBatch.from_arrays([*arrays, bad], names=[*names, BAD])


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Meanwhile the garbage collector does not run: it would visit the documents of a batch over and over, a quarter
    of the time, and find nothing, for documents are trees."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Documents:
    """The documents of one batch, and why rows are bad."""

    def __init__(self, decoder: JsonDecoder, values: Any) -> None:
        self._decoder, self._decoding = decoder, decoder.decoding
        self._reasons: dict[int, list[str]] = {}
        self._documents: list[Any] = [None] * len(values)
        self._has_value: list[bool] = values.is_valid().to_pylist()
        for index, text in enumerate(self._texts(values)):
            if text is not None:
                self._read(index, text)

    def _texts(self, values: Any) -> Sequence[str | None]:
        """Values as text; a value that is not UTF-8 is a bad row."""
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
            self._refuse(index, f"not JSON: byte {error.start + 1} is not UTF-8")
            return None

    def _read(self, index: int, text: str) -> None:
        try:
            document = parse(text)
        except NotJson as error:
            self._refuse(index, f"not JSON: {error}")
            return
        if self._decoding.columns is not None and type(document) is not dict:
            self._refuse(index, "not a JSON object of this schema")
            return
        self._documents[index] = document

    def _refuse(self, index: int, reason: str) -> None:
        self._reasons.setdefault(index, []).append(reason)

    def column(self, name: str, data_type: str, kind: Kind) -> Any:
        """The values of a field."""
        values = [None if document is None else document.get(name) for document in self._documents]
        if kind.as_they_are and set(map(type, values)) <= {*kind.as_they_are, _NONE_TYPE}:
            try:
                return pa.array(values, kind.arrow)
            except (pa.ArrowInvalid, OverflowError):  # a number is out of range: the loop below tells which
                pass
        for index, value in enumerate(values):
            if value is not None:
                try:
                    values[index] = kind.convert(value)
                except (NotOfType, NotJson, RecursionError):
                    values[index] = None
                    self._refuse(index, f"field {name} is not {data_type}")
        return pa.array(values, kind.arrow)

    def other_fields(self) -> Any:
        """JSON text of the fields that no column is for."""
        names = frozenset(name for name, _, _ in self._decoder.kinds)
        inner = [(name, kind.lacks) for name, _, kind in self._decoder.kinds if kind.lacks is not None]
        texts: list[str | None] = [None] * len(self._documents)
        for index, document in enumerate(self._documents):
            if document is None or index in self._reasons:
                continue
            others = {} if document.keys() <= names else {k: v for k, v in document.items() if k not in names}
            for name, lacks in inner:
                value = document.get(name)
                if value is not None and lacks(value):
                    others[name] = value
            if others:
                texts[index] = self._text_of(index, others)
            elif all(value is None for value in document.values()):
                texts[index] = "{}"
        return pa.array(texts, pa.string())

    def _text_of(self, index: int, others: dict[str, Any]) -> str | None:
        try:
            return text_of(others)
        except NotJson as error:
            self._refuse(index, f"not JSON: {error}")
            return None

    def times(self, path: Path, timestamps: Any) -> Any:
        """The time in each document; the record's for one without a value."""
        times: list[int | None] = [None] * len(self._documents)
        of_records = timestamps.cast(pa.int64()).to_pylist()
        for index, document in enumerate(self._documents):
            if not self._has_value[index]:
                times[index] = of_records[index]
            elif index not in self._reasons:
                value = path.find(document)
                times[index] = micros_of(value)
                if value is None:
                    self._refuse(index, f"no time at {self._decoding.time_path}")
                elif times[index] is None:
                    self._refuse(index, f"the value at {self._decoding.time_path} is no time of the years 1 to 9999")
        return pa.array(times, _TIMESTAMP)

    def reasons(self) -> Any:
        """The reason of each bad row, null for the others."""
        texts: list[str | None] = [None] * len(self._documents)
        for index, reasons in self._reasons.items():
            texts[index] = "; ".join(reasons)
        return pa.array(texts, pa.string())
