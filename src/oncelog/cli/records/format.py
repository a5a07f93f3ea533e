r"""The formats of ``consume``: kcat's format strings, its JSON envelope, or the value with key and headers.

Fields: ``%s`` value, ``%S`` its length (−1: null), ``%R`` the length as 4 bytes big-endian, ``%k`` key, ``%K`` its
length, ``%T`` timestamp in ms, ``%h`` headers as ``a=1,b=2``, ``%t`` topic, ``%p`` partition, ``%o`` offset, ``%%``;
and the escapes ``\n \r \t \\ \0 \xNN``.

Files and pipes get bytes unchanged. On a terminal ``visible_text`` escapes them, except for line ends and tabs of a
value. JSON escapes the same characters everywhere.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Final

from oncelog.base.notation.visible_text import visible, visible_json, visible_lines
from oncelog.client.machine.consumed_records import ConsumedRecord
from oncelog.client.machine.share.values import ShareRecord

Formatter = Callable[[ConsumedRecord | ShareRecord], bytes]
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}


class FormatError(ValueError):
    """An invalid format string."""


def unescape(text: str) -> bytes:
    """Backslash escapes as bytes, other text as UTF-8. Raises FormatError."""
    output = bytearray()
    at = 0
    while at < len(text):
        character = text[at]
        if character != "\\":
            output += character.encode()
            at += 1
            continue
        following = text[at + 1 : at + 2]
        if following == "x":
            try:
                output.append(int(text[at + 2 : at + 4], 16))
            except ValueError:
                raise FormatError(f"\\x must be followed by two hexadecimal digits in {text!r}") from None
            at += 4
        elif following in _ESCAPES:
            output += _ESCAPES[following]
            at += 2
        else:
            raise FormatError(f"unknown escape \\{following} in {text!r}")
    return bytes(output)


def compile_format(
    text: str, *, null: bytes = b"", encode_base64: bool = False, for_terminal: bool = False
) -> Formatter:
    """A formatter for a format string. ``for_terminal`` escapes control characters. Raises FormatError."""

    def data(value: bytes | None, shown: Callable[[str], str] = visible) -> bytes:
        if value is None:
            return null
        if encode_base64:
            return base64.b64encode(value)
        return shown(value.decode(errors="backslashreplace")).encode() if for_terminal else value

    def name(field: str) -> bytes:
        return visible(field).encode() if for_terminal else field.encode()

    fields: dict[str, Formatter] = {
        "s": lambda record: data(record.value, visible_lines),
        "S": lambda record: b"%d" % _length(record.value),
        "R": lambda record: _length(record.value).to_bytes(4, "big", signed=True),
        "k": lambda record: data(record.key),
        "K": lambda record: b"%d" % _length(record.key),
        "T": lambda record: b"%d" % record.timestamp,
        "h": lambda record: b",".join(name(key) + b"=" + data(value) for key, value in record.headers),
        "t": lambda record: name(record.topic),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
    }
    parts: list[bytes | Formatter] = []
    literal = ""
    at = 0
    while at < len(text):
        if text[at] != "%":
            literal += text[at]
            at += 1
            continue
        letter = text[at + 1 : at + 2]
        if letter == "%":
            literal += "%"
        elif letter in fields and letter:
            parts += [unescape(literal), fields[letter]]
            literal = ""
        else:
            raise FormatError(f"unknown field %{letter} in {text!r}; the fields are %{' %'.join(fields)} %%")
        at += 2
    parts.append(unescape(literal))
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in parts)


def json_envelope(record: ConsumedRecord | ShareRecord, encode_base64: bool = False) -> bytes:
    """The record as a line of JSON with kcat's names; bytes that are not UTF-8 become base64, named in ``…_encoding``.

    ``headers`` has names and values in turn, ``headers_encoding`` (if any is base64) an entry for each header.
    """
    document: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "tstype": record.timestamp_type,
        "ts": record.timestamp,
        "leader_epoch": record.leader_epoch,
    }
    if isinstance(record, ShareRecord):
        document["delivery_count"] = record.delivery_count
    if record.headers:
        flat: list[str | None] = []
        encodings: list[str | None] = []
        for name, value in record.headers:
            text, encoding = (None, None) if value is None else _text(value, encode_base64)
            flat += [name, text]
            encodings.append(encoding)
        document["headers"] = flat
        if any(encodings):
            document["headers_encoding"] = encodings
    for name, data in (("key", record.key), ("payload", record.value)):
        if data is None:
            document[name] = None
            continue
        document[name], encoding = _text(data, encode_base64)
        if encoding:
            document[f"{name}_encoding"] = encoding
    return visible_json(json.dumps(document, ensure_ascii=False, separators=(",", ":"))).encode() + b"\n"


def _text(data: bytes, encode_base64: bool) -> tuple[str, str | None]:
    if not encode_base64:
        try:
            return data.decode(), None
        except UnicodeDecodeError:
            pass
    return base64.b64encode(data).decode(), "base64"


def _length(value: bytes | None) -> int:
    return -1 if value is None else len(value)
