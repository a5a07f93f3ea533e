"""Bytes of keys, values and headers as text for people: cut, decoded as asked, and never more than text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

FORMATS: Final = ("auto", "text", "json", "hex", "integer")
PREVIEW_BYTES: Final = 2000
FULL_BYTES: Final = 2 * 1024 * 1024
"""The most that a page shows of one value."""
_INTEGER_SIZES: Final = frozenset({1, 2, 4, 8})


@dataclass(frozen=True, slots=True)
class Shown:
    """Bytes as shown. ``format`` is what they were decoded as, ``cut`` true if there are more than ``text`` shows;
    ``text`` is None for null."""

    text: str | None
    format: str
    size_bytes: int
    cut: bool = False


def decoded(value: bytes | None, form: str = "auto", most: int = PREVIEW_BYTES) -> Shown:
    """Bytes in a format; what they are not in that format is shown as hexadecimal digits instead."""
    if value is None:
        return Shown(None, "null", 0)
    kept, size = value[:most], len(value)
    cut = size > most
    if form in ("auto", "json") and not cut and (text := _json(kept, any_value=form == "json")) is not None:
        return Shown(text, "json", size)
    if form in ("auto", "text", "json"):
        try:
            return Shown(_text(kept, cut), "text", size, cut)
        except UnicodeDecodeError:
            if form == "text":
                return Shown(kept.decode(errors="replace"), "text", size, cut)
    if form == "integer" and size in _INTEGER_SIZES:
        return Shown(str(int.from_bytes(value, "big", signed=True)), "integer", size)
    return Shown(kept.hex(" "), "hex", size, cut)


def _json(value: bytes, any_value: bool) -> str | None:
    """Indented JSON, None for what is none; for ``auto`` only objects and lists count, else every number would."""
    if not any_value and value.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return json.dumps(json.loads(value), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def _text(value: bytes, cut: bool) -> str:
    """UTF-8 text; where it was cut, the last character may be lost. Raises UnicodeDecodeError."""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        if cut and error.start >= len(value) - 3:
            return value[: error.start].decode()
        raise
