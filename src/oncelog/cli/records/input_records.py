"""The input of ``oncelog produce``: pieces of a byte stream, parsed into records.

A piece, of bounded size, ends at the delimiter and is passed on as soon as it arrives. It is a line with an optional
key, or JSON as ``consume --json`` prints it. ``None`` marks a pause of the stream, at which the caller can send an
incomplete batch.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import json
import os
import select
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from oncelog.base.notation import json_text
from oncelog.base.units import INT64_MAX, KIB, MIB
from oncelog.client.errors import ClientError
from oncelog.client.machine.record_values import NO_TIMESTAMP

_MOST_DIGITS: Final = 19


class Parsing(NamedTuple):
    """How a piece of input becomes a record. The parts in ``as_json`` stay JSON, for a schema."""

    key_delimiter: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    null: bytes | None
    is_json: bool
    is_base64: bool
    partition: int | None
    timestamp_ms: int | None
    as_json: frozenset[str] = frozenset()


class Parsed(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    timestamp_ms: int | None


class InputError(ValueError):
    """A piece of input that is not a record."""


def parse(piece: bytes, parsing: Parsing) -> Parsed:
    """The record in a piece of input. Raises InputError."""
    if parsing.is_json:
        return _parse_json(piece, parsing)
    key, value = parsing.key, piece
    if parsing.key_delimiter is not None:
        key, delimiter, value = piece.partition(parsing.key_delimiter)
        if not delimiter:
            raise InputError(f"no key delimiter {parsing.key_delimiter!r} in {piece[:40]!r}")
    return Parsed(
        None if parsing.null is not None and key == parsing.null else _decoded(key, parsing.is_base64),
        None if parsing.null is not None and value == parsing.null else _decoded(value, parsing.is_base64),
        parsing.headers,
        parsing.partition,
        parsing.timestamp_ms,
    )


def _parse_json(piece: bytes, parsing: Parsing) -> Parsed:
    """A line of ``consume --json``; its topic, partition and offset are ignored, its timestamp is kept."""
    text = _text(piece)
    try:
        document = json_text.check(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InputError(f"not a JSON object with a 'payload', but {text[:40]!r}")
    if "payload" not in document:
        names = ", ".join(map(repr, document)) or "nothing"
        raise InputError(f"no 'payload' (the record's value) in it, only {names:.80}")

    def part(name: str, part: str) -> bytes | None:
        if part in parsing.as_json and document.get(name) is not None:
            if f"{name}_encoding" in document or f"{name}_error" in document:
                raise InputError(f"its {name!r} is bytes that were not decoded, and not a value for a schema")
            return json_text.members(text)[name].encode("utf-8", "surrogatepass")
        is_base64 = parsing.is_base64 or document.get(f"{name}_encoding") == "base64"
        return _json_bytes(document.get(name), lambda: json_text.members(text)[name], is_base64)

    return Parsed(
        part("key", "key"),
        part("payload", "value"),
        _headers(document, text) + parsing.headers,
        parsing.partition,
        parsing.timestamp_ms if parsing.timestamp_ms is not None else _timestamp(document.get("ts")),
    )


def _text(piece: bytes) -> str:
    try:
        return piece.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"not JSON: byte {error.start} is not UTF-8") from None


def _headers(document: dict[str, Any], text: str) -> tuple[tuple[str, bytes | None], ...]:
    """Headers from a list of names and values; ``headers_encoding`` has an entry per header. Raises InputError."""
    flat = document.get("headers")
    if flat is None:
        return ()
    if not isinstance(flat, list) or len(flat) % 2:
        raise InputError("headers must be a list of names and values in turn, such as ['name', 'value']")
    encodings = document.get("headers_encoding")
    if encodings is None:
        encodings = [None] * (len(flat) // 2)
    if not isinstance(encodings, list) or len(encodings) != len(flat) // 2:
        raise InputError(f"headers_encoding must be a list with one entry for each of the {len(flat) // 2} headers")

    texts: list[str] = []

    def raw(index: int) -> str:
        if not texts:
            texts.extend(json_text.elements(json_text.members(text)["headers"]))
        return texts[index]

    headers = []
    for index, encoding in enumerate(encodings):
        name, value = flat[2 * index], flat[2 * index + 1]
        if not isinstance(name, str) or isinstance(name, json_text.Number) or not _can_be_encoded(name):
            raise InputError(f"the name of header {index + 1} is {raw(2 * index):.40}; a name must be text")
        headers.append((name, _json_bytes(value, partial(raw, 2 * index + 1), encoding == "base64")))
    return tuple(headers)


def _can_be_encoded(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _timestamp(value: object) -> int | None:
    """The ``ts`` of a line. Raises InputError."""
    if value is None:
        return None
    text = value if isinstance(value, json_text.Number) else json.dumps(value)
    digits = text.removeprefix("-")
    is_long = isinstance(value, json_text.Number) and digits.isdigit() and len(digits) <= _MOST_DIGITS
    if not is_long or not NO_TIMESTAMP <= int(text) <= INT64_MAX:
        raise InputError(f"ts is {text[:40]}; a producer sends whole milliseconds since 1970, or -1 for none")
    return int(text)


def _json_bytes(value: object, raw: Callable[[], str], is_base64: bool) -> bytes | None:
    """A string as bytes, null as None, anything else as its JSON text, which ``raw`` finds."""
    if value is None:
        return None
    if isinstance(value, json_text.Number):
        return value.encode()
    if isinstance(value, str):
        return _decoded(value.encode("utf-8", "surrogatepass"), is_base64)
    return raw().encode("utf-8", "surrogatepass")


def _decoded(data: bytes | None, is_base64: bool) -> bytes | None:
    if data is None or not is_base64:
        return data
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise InputError(f"not base64: {error}") from None


MAX_RECORD_BYTES: Final = 256 * MIB
_CHUNK_BYTES: Final = 256 * KIB


def split_stream(descriptor: int, delimiter: bytes, idle_ms: int) -> Iterator[bytes | None]:
    """The records of a file descriptor, and None once for each pause of ``idle_ms``."""
    record = bytearray()
    """The record that has begun, without the bytes that may belong to a delimiter."""
    tail = b""
    paused = False
    while True:
        if not paused and not select.select([descriptor], [], [], idle_ms / 1000)[0]:
            paused = True
            yield None
            continue
        paused = False
        chunk = os.read(descriptor, _CHUNK_BYTES)
        if not chunk:
            break
        *ends, rest = (tail + chunk).split(delimiter)
        for end in ends:
            yield bytes(record + end) if record else end
            record.clear()
        cut = max(0, len(rest) - len(delimiter) + 1)
        record += rest[:cut]
        tail = rest[cut:]
        if len(record) > MAX_RECORD_BYTES:
            raise ClientError(
                f"no delimiter within {MAX_RECORD_BYTES} bytes of input; set the right one by --delimiter"
            )
    if record or tail:
        yield bytes(record) + tail
