"""JSON of rows with large keys or values, written in pieces as ``json.dumps`` would write it.

A str with one character beyond the basic plane takes four bytes per character, so values are decoded and escaped
``PIECE`` bytes at a time, and no large text is in memory as a whole.
"""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from oncelog.base.units import KIB
from oncelog.console.records.temporary_files import TemporaryBytes

PIECE: Final = 192 * KIB  # A multiple of three, so that pieces of base64 join without padding.
LARGE: Final = 4 * PIECE


class LargeBytes:
    """Bytes written as a JSON string: as text, or as base64."""

    def __init__(self, data: bytes, *, is_text: bool) -> None:
        self._data = memoryview(data)
        self._is_text = is_text

    def __str__(self) -> str:
        return str(self._data, "utf-8") if self._is_text else base64.b64encode(self._data).decode()

    def __len__(self) -> int:
        return len(self._data)

    def pieces(self) -> Iterator[bytes]:
        yield b'"'
        decoder = codecs.getincrementaldecoder("utf-8")()
        for at in range(0, len(self._data), PIECE):
            piece = self._data[at : at + PIECE]
            yield _escaped(decoder.decode(piece)) if self._is_text else base64.b64encode(piece)
        yield b'"'


class JsonText(str):
    """Text that is already JSON and is written unchanged."""

    __slots__ = ()


class StoredString(LargeBytes):
    """A JSON string, already encoded, in a temporary file until it is sent."""

    def __init__(self, data: bytes, *, is_text: bool) -> None:
        super().__init__(b"", is_text=is_text)
        self._buffer = TemporaryBytes()
        self._buffer.write(LargeBytes(data, is_text=is_text).pieces())

    def pieces(self) -> Iterator[bytes]:
        """The string with its quotation marks; works once."""
        return self._buffer.drain()


def _escaped(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()


def is_text(data: bytes) -> bool:
    decoder, view = codecs.getincrementaldecoder("utf-8")(), memoryview(data)
    try:
        for at in range(0, len(view), PIECE):
            decoder.decode(view[at : at + PIECE])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def json_pieces(value: Any) -> Iterator[bytes]:
    if isinstance(value, LargeBytes):
        yield from value.pieces()
    elif isinstance(value, JsonText):
        yield value.encode(errors="backslashreplace")
    elif isinstance(value, Mapping):
        for number, (name, item) in enumerate(value.items()):
            yield (b"," if number else b"{") + json.dumps(name, ensure_ascii=False).encode(errors="backslashreplace")
            yield b":"
            yield from json_pieces(item)
        yield b"}" if value else b"{}"
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for number, item in enumerate(value):
            yield b"," if number else b"["
            yield from json_pieces(item)
        yield b"]" if value else b"[]"
    else:
        yield json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace")
