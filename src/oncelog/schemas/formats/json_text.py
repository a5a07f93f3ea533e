"""JSON as a registry writes it, which is as Jackson does: no spaces, keys in their order, characters unescaped."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any, Final

from oncelog.schemas.formats.limits import MAX_JSON_DEPTH
from oncelog.schemas.schema import SchemaError

_CONTROL: Final = re.compile(r'[\x00-\x1f"\\]')
_TOO_DEEP: Final = f"the JSON of the schema is nested more than {MAX_JSON_DEPTH} deep; give an inner type a name"
_SHORT: Final = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def read(text: str, *, exact: bool = False) -> Any:
    """A JSON value; its fractions are Decimals if ``exact``. Raises SchemaError."""
    try:
        value = json.loads(text, parse_constant=_reject, parse_float=Decimal if exact else _double)
    except RecursionError:
        raise SchemaError(_TOO_DEEP) from None
    except ValueError as error:
        raise SchemaError(f"the schema is not valid JSON: {error}") from None
    _check_depth(value)
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_JSON_DEPTH):
        inner: list[Any] = []
        for container in level:
            if isinstance(container, dict):
                inner += [element for element in container.values() if isinstance(element, (dict, list))]
            elif isinstance(container, list):
                inner += [element for element in container if isinstance(element, (dict, list))]
        if not inner:
            return
        level = inner
    raise SchemaError(_TOO_DEEP)


def _double(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:50]} does not fit 64 bits")
    return number


def _reject(constant: str) -> None:
    raise ValueError(f"{constant} is not a number of JSON")


def write(value: Any, *, sort: bool = False) -> str:
    pieces: list[str] = []
    _write(value, pieces, sort)
    return "".join(pieces)


def _write(value: Any, pieces: list[str], sort: bool) -> None:
    if isinstance(value, dict):
        separator = "{"
        for key in sorted(value, key=utf16) if sort else value:
            pieces.append(f"{separator}{quote(key)}:")
            _write(value[key], pieces, sort)
            separator = ","
        pieces.append("}" if value else "{}")
    elif isinstance(value, (list, tuple)):
        separator = "["
        for element in value:
            pieces.append(separator)
            _write(element, pieces, sort)
            separator = ","
        pieces.append("]" if value else "[]")
    else:
        pieces.append(_scalar(value))


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return quote(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return java_double(value) if isinstance(value, float) else str(value)


def quote(text: str) -> str:
    return '"' + _CONTROL.sub(_escape, text) + '"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return _SHORT.get(character) or f"\\u{ord(character):04X}"


def utf16(key: str) -> bytes:
    """Orders strings as Java does, by UTF-16 code units."""
    return key.encode("utf-16-be", "surrogatepass")


def java_double(value: float) -> str:
    """A double as Java's Double.toString writes it: 1.0E16, where Python writes 1e+16."""
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text = "".join(map(str, digits))
    power = len(text) - 1 + int(exponent)
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{power}"
