"""Bytes of keys, values and headers as text for people: shortened, and decoded in the requested format.

Bytes that are not in that format are shown as hexadecimal digits, with the reason in ``error``. ``auto`` tries the
schema given to the console, then JSON, text and hexadecimal digits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from oncelog.base.notation import json_text
from oncelog.console.formats.decoder_process import ANSWER_S, MESSAGEPACK, DecodingProcess, Text
from oncelog.console.formats.schema_files import AVRO, PROTOBUF, schema_for
from oncelog.console.records.large_json import LARGE, LargeBytes, StoredString
from oncelog.records.record import Headers
from oncelog.schemas.client.errors import RegistryError
from oncelog.schemas.schema import SchemaError
from oncelog.schemas.wire_format import KEY, VALUE, Framed, framed

if TYPE_CHECKING:
    from oncelog.console.formats.registry_schemas import FetchedSchema, RegistrySchemas
    from oncelog.schemas.client.registry import SubjectVersion

MESSAGEPACK_FORMAT: Final = "messagepack"
JSON: Final = "json"
_BY_REGISTRY: Final = frozenset({"auto", AVRO, PROTOBUF, JSON})
FORMATS: Final = ("auto", "text", "json", "hex", "integer", MESSAGEPACK_FORMAT, AVRO, PROTOBUF)
PREVIEW_BYTES: Final = 2000
FULL_BYTES: Final = 2 * 1024 * 1024  # A page shows at most this much of one value.
BUDGET_S: Final = 4.0  # Time limit of one page for formats that need a schema or a library.
_OF_TEXT: Final = frozenset("\t\n\r")
_INTEGER_SIZES: Final = frozenset({1, 2, 4, 8})


@dataclass(frozen=True, slots=True)
class Shown:
    """Bytes as shown. ``format`` is the format they were decoded from; ``text`` is None for null, and not all if
    ``cut``.

    ``schema_id`` is the registry's id found with the bytes, ``place`` a subject and version that has it; ``error`` says
    why they are not in the requested format.
    """

    text: str | LargeBytes | None
    format: str
    size_bytes: int
    cut: bool = False
    schema_id: str | None = None
    note: str = ""
    error: str | None = None
    place: SubjectVersion | None = None


def offload_text(shown: Shown, as_json: bool) -> Shown:
    """A decoded value while it waits to be sent: long text as UTF-8 bytes (smaller than str), or JSON in a file."""
    if not isinstance(shown.text, str) or len(shown.text) < LARGE:
        return shown
    data = shown.text.encode(errors="backslashreplace")
    return replace(shown, text=(StoredString if as_json else LargeBytes)(data, is_text=True))


class Decoder:
    """Decodes the keys and values of one page within a time limit; the remaining ones are shown as bytes."""

    def __init__(
        self,
        process: DecodingProcess,
        clock: Callable[[], float] = time.monotonic,
        *,
        registry: RegistrySchemas | None = None,
        budget_s: float = BUDGET_S,
        is_indented: bool = True,
    ) -> None:
        self._process = process
        self._registry = registry
        self._clock = clock
        self._budget_s = self._left_s = budget_s
        self._indent = 2 if is_indented else None

    def key(self, topic: str, key: bytes | None, headers: Headers, form: str, most: int = PREVIEW_BYTES) -> Shown:
        return self._part(topic, KEY, key, headers, form, most)

    def value(self, topic: str, value: bytes | None, headers: Headers, form: str, most: int = PREVIEW_BYTES) -> Shown:
        return self._part(topic, VALUE, value, headers, form, most)

    def _part(self, topic: str, part: str, value: bytes | None, headers: Headers, form: str, most: int) -> Shown:
        if value is None:
            return decoded(None)
        framed_value = framed(value, part, headers)
        if form == MESSAGEPACK_FORMAT:
            return self._first_that_fits(MESSAGEPACK, form, value, framed_value, most)
        index = schema_for(self._process.schemas, topic, part, framed_value.schema_id)
        if index is not None and form in ("auto", (kind := self._process.schemas[index].kind)):
            return self._first_that_fits(index, kind, value, framed_value, most)
        if self._registry is not None and framed_value.schema_id is not None and form in _BY_REGISTRY:
            return self._registered(self._registry, f"{topic}-{part}", value, framed_value, form, most)
        if form in (AVRO, PROTOBUF):
            of_id = "" if framed_value.schema_id is None else f" and schema id {framed_value.schema_id}"
            reason = f"no {form} schema for this topic's {part}s{of_id}; start the console with --schema or --registry"
            return replace(decoded(value, "hex", most), schema_id=framed_value.schema_id, error=reason)
        return _bare(value, framed_value, form, most)

    def _first_that_fits(self, schema: int, form: str, value: bytes, framed_value: Framed, most: int) -> Shown:
        """Decode without the prefix that seems to be there, else with it: a bare payload may begin alike."""
        text = self._ask(
            schema,
            framed_value.payload,
            framed_value.rest,
            framed_value.schema_id is not None and not framed_value.in_header,
            most,
        )
        schema_id = framed_value.schema_id
        if text.error is not None and schema_id is not None and not framed_value.in_header:
            bare = self._ask(schema, value, b"", False, most)
            if bare.error is None:
                text, schema_id = bare, None
        if text.error is not None:
            return replace(decoded(value, "hex", most), schema_id=schema_id, error=f"not {form}: {text.error}")
        return Shown(text.text, form, len(value), text.cut, schema_id, text.note)

    def _registered(
        self, registry: RegistrySchemas, subject: str, value: bytes, framed_value: Framed, form: str, most: int
    ) -> Shown:
        """A value by the schema of its id in the registry, or with the reason why not."""
        schema_id = framed_value.schema_id or ""
        try:
            with self._charged():
                fetched = registry.fetch(schema_id)
                place = registry.place(schema_id, subject)
        except (RegistryError, SchemaError, _Late) as error:
            return replace(_bare(value, framed_value, form, most), schema_id=schema_id, error=str(error))
        if form not in ("auto", fetched.kind):
            shown = replace(decoded(value, "hex", most), error=f"not {form}: its schema is {fetched.kind}")
        elif fetched.kind == JSON:
            shown = decoded(framed_value.payload, JSON, most)
            if shown.format != JSON and not shown.cut:
                shown = replace(shown, error="not json")
        else:
            text = self._text_by(fetched, framed_value, most)
            shown = Shown(text.text, fetched.kind, len(value), text.cut, note=text.note)
            if text.error is not None:
                shown = replace(decoded(value, "hex", most), error=f"not {fetched.kind}: {text.error}")
        return replace(shown, size_bytes=len(value), schema_id=schema_id, place=place)

    def _text_by(self, fetched: FetchedSchema, framed_value: Framed, most: int) -> Text:
        try:
            with self._charged() as wait_s:
                how = {"framed": not framed_value.in_header, "most": most, "indent": self._indent}
                payload, rest = framed_value.payload, framed_value.rest
                return self._process.registered_text(fetched, payload, rest, how, wait_s)
        except _Late as error:
            return Text("", error=str(error))

    def _ask(self, schema: int, payload: bytes, rest: bytes, has_id: bool, most: int) -> Text:
        try:
            with self._charged() as wait_s:
                how = {"framed": has_id, "most": most, "indent": self._indent}
                return self._process.text(schema, payload, rest, how, wait_s)
        except _Late as error:
            return Text("", error=str(error))

    @contextmanager
    def _charged(self) -> Iterator[float]:
        """The time that a step may take; the step is charged to the page. Raises _Late when none is left."""
        if self._left_s <= 0:
            raise _Late(f"decoding this page took more than {self._budget_s:g} s; open the record by itself")
        self._process.prepare()
        began = self._clock()
        try:
            yield min(ANSWER_S, self._left_s)
        finally:
            self._left_s -= self._clock() - began


class _Late(Exception):
    """The time of the page is used up."""


def _bare(value: bytes, framed_value: Framed, form: str, most: int) -> Shown:
    """A value without a schema. Serializers of JSON Schema prefix the schema's id; it is stripped from JSON."""
    if framed_value.schema_id is not None and not framed_value.in_header and form in ("auto", "json"):
        inner = decoded(framed_value.payload, form, most)
        if inner.format == "json":
            return replace(inner, size_bytes=len(value), schema_id=framed_value.schema_id)
    return replace(decoded(value, form, most), schema_id=framed_value.schema_id if framed_value.in_header else None)


def decoded(value: bytes | None, form: str = "auto", most: int = PREVIEW_BYTES) -> Shown:
    """Bytes in a format that needs no schema, or hexadecimal digits."""
    if value is None:
        return Shown(None, "null", 0)
    kept, size = value[:most], len(value)
    cut = size > most
    if form in ("auto", "json") and not cut and (text := _json(kept, any_value=form == "json")) is not None:
        return Shown(text, "json", size)
    if form in ("auto", "text", "json"):
        try:
            text = _text(kept, cut)
            if form != "auto" or not _is_binary(text):
                return Shown(text, "text", size, cut)
        except UnicodeDecodeError:
            if form == "text":
                return Shown(kept.decode(errors="replace"), "text", size, cut)
    if form == "integer" and size in _INTEGER_SIZES:
        return Shown(str(int.from_bytes(value, "big", signed=True)), "integer", size)
    return Shown(kept.hex(" "), "hex", size, cut)


def _json(value: bytes, any_value: bool) -> str | None:
    """Indented JSON that keeps the record's digits and names; None for other bytes. For ``auto`` only objects and lists
    count; otherwise every number would."""
    if not any_value and value.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return json_text.indented(value.decode())
    except (ValueError, RecursionError):
        return None


def _is_binary(text: str) -> bool:
    """True if more than a tenth are control characters: integers and markers are valid UTF-8 too."""
    return 10 * sum(char < " " and char not in _OF_TEXT for char in text) > len(text)


def _text(value: bytes, cut: bool) -> str:
    """UTF-8 text; a character truncated at the end is dropped. Raises UnicodeDecodeError."""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        # A cut may fall inside a character, which has at most four bytes.
        if cut and error.start >= len(value) - 3:
            return value[: error.start].decode()
        raise
