"""Pieces of input as records to send: lines with a key in front, or JSON as ``consume --json`` prints it."""

from __future__ import annotations

import base64
import binascii
import codecs
from typing import Any, NamedTuple

from oncelog.base import json_text
from oncelog.base.units import INT64_MAX


class Parsing(NamedTuple):
    """The way from a piece of input to a record."""

    key_delimiter: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    null: bytes | None
    is_json: bool
    is_base64: bool
    partition: int | None
    timestamp_ms: int | None


class Parsed(NamedTuple):
    """A record to send."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    timestamp_ms: int | None


class InputError(ValueError):
    """A piece of input that is no record."""


def parse(piece: bytes, parsing: Parsing) -> Parsed:
    """The record in a piece of input. Raises InputError."""
    if parsing.is_json:
        return _parse_json(piece, parsing)
    key, value = parsing.key, piece
    if parsing.key_delimiter is not None:
        key, found, value = piece.partition(parsing.key_delimiter)
        if not found:
            raise InputError(f"no key delimiter {parsing.key_delimiter!r} in {piece[:40]!r}")
    return Parsed(
        None if parsing.null is not None and key == parsing.null else _decoded(key, parsing.is_base64),
        None if parsing.null is not None and value == parsing.null else _decoded(value, parsing.is_base64),
        parsing.headers,
        parsing.partition,
        parsing.timestamp_ms,
    )


def _parse_json(piece: bytes, parsing: Parsing) -> Parsed:
    """A line of ``consume --json``; topic, partition and offset in it are ignored, the timestamp is kept."""
    text = _text(piece)
    try:
        structure = json_text.check(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}") from None
    if not text.lstrip().startswith("{"):
        raise InputError("not a JSON object")
    document: dict[str, Any] = dict(structure)
    raw = json_text.members(text)
    if "payload" not in document:
        names = ", ".join(map(repr, document)) or "nothing"
        raise InputError(f"no 'payload' in it, which is the record's value, but {names:.80}")

    def part(name: str) -> bytes | None:
        is_base64 = parsing.is_base64 or document.get(f"{name}_encoding") == "base64"
        return _json_bytes(document.get(name), raw.get(name, "null"), is_base64)

    return Parsed(
        part("key"),
        part("payload"),
        _headers(document, raw) + parsing.headers,
        parsing.partition,
        parsing.timestamp_ms if parsing.timestamp_ms is not None else _timestamp(raw.get("ts", "null")),
    )


def _text(piece: bytes) -> str:
    try:
        return piece.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"not JSON: byte {error.start} is not UTF-8") from None


def _headers(document: dict[str, Any], raw: dict[str, str]) -> tuple[tuple[str, bytes | None], ...]:
    """The headers: names and values in turn; ``headers_encoding`` has an entry for each header. Raises InputError."""
    flat = document.get("headers") or []
    texts = json_text.elements(raw["headers"]) if flat else []
    if not raw.get("headers", "[").startswith(("[", "null")) or len(texts) % 2:
        raise InputError("headers are not a list of names and values in turn")
    encodings = document.get("headers_encoding")
    if encodings is None:
        encodings = [None] * (len(texts) // 2)
    if not isinstance(encodings, list) or len(encodings) != len(texts) // 2:
        raise InputError("headers_encoding does not have an entry for each header")
    headers = []
    for index, encoding in enumerate(encodings):
        name, value = flat[2 * index], flat[2 * index + 1]
        if not texts[2 * index].startswith('"') or not _can_be_encoded(name):
            raise InputError(f"the name of header {index + 1} is not text")
        headers.append((name, _json_bytes(value, texts[2 * index + 1], encoding == "base64")))
    return tuple(headers)


def _can_be_encoded(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _timestamp(text: str) -> int | None:
    """The ``ts`` of a line. Raises InputError."""
    if text == "null":
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19 or not -1 <= int(text) <= INT64_MAX:
        raise InputError(f"ts is {text[:40]}, and not a whole number of milliseconds since 1970 (-1 for none)")
    return int(text)


def _json_bytes(value: object, text: str, is_base64: bool) -> bytes | None:
    """A string as it is, null as null, anything else as the JSON that it is."""
    if text == "null":
        return None
    if not text.startswith('"'):
        return text.encode()
    assert isinstance(value, str)
    return _decoded(value.encode("utf-8", "surrogatepass"), is_base64)


def _decoded(data: bytes | None, is_base64: bool) -> bytes | None:
    if data is None or not is_base64:
        return data
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise InputError(f"not base64: {error}") from None
