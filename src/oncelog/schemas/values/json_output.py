"""Decoded values as JSON text: what JSON has no type for becomes text, as `avro_input` reads it."""

from __future__ import annotations

import json
import math
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from oncelog.base.notation import json_text
from oncelog.schemas.schema import SchemaType
from oncelog.schemas.values.avro_input import MAX_DIGITS
from oncelog.schemas.values.decoding import Decoded
from oncelog.schemas.values.errors import NotReadable


def as_json(decoded: Decoded) -> str:
    """A value as one line of JSON; JSON itself keeps its digits and names. Raises NotReadable."""
    try:
        if decoded.schema.type is SchemaType.JSON:
            return json_text.compacted(decoded.payload.decode())
        try:
            return _dumped(decoded.value)
        except ValueError:
            return _dumped(finite(decoded.value))
    except RecursionError:
        raise NotReadable("it is nested too deep for JSON") from None


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=text_of)


def text_of(value: Any) -> str:
    """A value that JSON has no type for."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, Decimal) and abs(value.adjusted()) <= MAX_DIGITS:
        return format(value, "f")
    return value.isoformat() if isinstance(value, datetime | date | time) else str(value)


def finite(value: Any) -> Any:
    """The value with text for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value).replace("nan", "NaN").replace("inf", "Infinity")
    return value
