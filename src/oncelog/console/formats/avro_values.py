"""Avro logical types that tolerate odd values, so that one field never hides its record. For the worker process alone.

A value that Python cannot express is shown raw, with a note. Decimals keep all their digits, whatever the schema
declares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

_MAX_DECIMAL_BYTES: Final = 1_000
_MAX_SCALE: Final = 10_000
_DECIMAL: Final = "decimal"

_raw: Final[Counter[str]] = Counter()
_beyond: Final[Counter[str]] = Counter()


def install(readers: dict[str, Callable[..., Any]]) -> None:
    """Replace fastavro's readers of logical types, once."""
    if any(getattr(read, "is_tolerant", False) for read in readers.values()):
        return
    for name, read in list(readers.items()):
        kind = name.partition("-")[2]
        readers[name] = _tolerant(kind, _decimal if kind == _DECIMAL else read)


def take_note() -> str:
    """The note about values read since the last call; empty if none was odd."""
    notes = [f"{count} of type {kind} cannot be expressed, shown raw" for kind, count in sorted(_raw.items())]
    notes += [f"{count} of type {kind} beyond the precision" for kind, count in sorted(_beyond.items())]
    _raw.clear()
    _beyond.clear()
    return ", ".join(notes)


def _tolerant(kind: str, read: Callable[..., Any]) -> Callable[..., Any]:
    def reader(data: Any, *schemas: Any) -> Any:
        try:
            return read(data, *schemas)
        except (ValueError, TypeError, ArithmeticError, LookupError):
            _raw[kind] += 1
            return data

    reader.is_tolerant = True  # type: ignore[attr-defined]  # a mark
    return reader


def _decimal(data: bytes, schema: dict[str, Any], *_: Any) -> str:
    scale = schema.get("scale", 0)
    if len(data) > _MAX_DECIMAL_BYTES or not 0 <= scale <= _MAX_SCALE:
        raise ValueError("the decimal has too many digits")
    unscaled = int.from_bytes(data, "big", signed=True)
    digits = str(abs(unscaled))
    if len(digits) > schema.get("precision", len(digits)):
        _beyond[_DECIMAL] += 1
    digits = digits.zfill(scale + 1)
    point = len(digits) - scale
    return ("-" if unscaled < 0 else "") + digits[:point] + ("." + digits[point:] if scale else "")
