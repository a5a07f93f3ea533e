"""Values given for an Avro schema as fastavro takes them: branches of unions chosen, JSON's texts made dates and bytes.

JSON has fewer types than Avro, so a text may stand for bytes (a character for each), a decimal, a date, a time or a
timestamp (ISO 8601). A union takes the value itself, as the first branch that fits, or Avro's JSON: ``{"int": 7}``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

from oncelog.schemas.formats.avro.types import NO_DEFAULT, Array, AvroType, Enum, Fixed, Map, Named, Record, Union
from oncelog.schemas.values.errors import NotWritable

MAX_DEPTH: Final = 100
MAX_DIGITS: Final = 10_000
"""Digits before or after the point of a decimal."""
_RANGES: Final = {"int": 2**31, "long": 2**63}
_MOST_SHOWN: Final = 60


def fitted(kind: AvroType, value: Any) -> Any:
    """Raises NotWritable, which names the place in the value."""
    return _fitted(kind, value, "the value", 0)


def _fitted(kind: AvroType, value: Any, path: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise NotWritable(f"{path[:_MOST_SHOWN]}… is nested deeper than {MAX_DEPTH} levels")
    if isinstance(kind, Union):
        return _branch(kind, value, path, depth)
    if isinstance(kind, Record):
        return _record(kind, value, path, depth)
    if isinstance(kind, Array):
        if not isinstance(value, list | tuple):
            raise _misfit(kind, value, path)
        return [_fitted(kind.items, element, f"{path}[{index}]", depth + 1) for index, element in enumerate(value)]
    if isinstance(kind, Map):
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise _misfit(kind, value, path)
        return {key: _fitted(kind.values, element, f"{path}.{key}", depth + 1) for key, element in value.items()}
    return _single(kind, value, path)


def _record(kind: Record, value: Any, path: str, depth: int) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _misfit(kind, value, path)
    names = {field.name for field in kind.fields}
    for name in value:
        if name not in names:
            raise NotWritable(f"{path} has the field {name!r}, which {kind.full_name} does not declare")
    fields = {}
    for field in kind.fields:
        if field.name in value:
            fields[field.name] = _fitted(field.type, value[field.name], f"{path}.{field.name}", depth + 1)
        elif field.default is NO_DEFAULT:
            raise NotWritable(f"{path} has no field {field.name!r}, which {kind.full_name} declares without a default")
        else:
            # A default of a union belongs to one of its branches, as any value does.
            fields[field.name] = _fitted(field.type, field.default, f"{path}.{field.name}", depth + 1)
    return fields


def _branch(kind: Union, value: Any, path: str, depth: int) -> Any:
    by_name = {_name(branch): branch for branch in kind.branches}
    if value is None and "null" in by_name:
        return None
    if isinstance(value, dict) and len(value) == 1 and (tagged := by_name.get(str(next(iter(value))))) is not None:
        name, inner = next(iter(value.items()))
        try:
            return name, _fitted(tagged, inner, f"{path}.{name}", depth + 1)
        except NotWritable:
            pass  # a map or record may have a key of that name
    reasons = []
    for name, branch in by_name.items():
        try:
            return name, _fitted(branch, value, path, depth + 1)
        except NotWritable as error:
            reasons.append(str(error))
    closest = f": {reasons[-1]}" if len([name for name in by_name if name != "null"]) == 1 else ""
    raise NotWritable(f"{path} is {_shown(value)}, which fits none of {', '.join(by_name)}{closest}")


def _single(kind: AvroType, value: Any, path: str) -> Any:
    logical = kind.properties.get("logicalType")
    convert = _LOGICAL.get(logical) if isinstance(logical, str) else None
    if convert is not None and not isinstance(value, bool):
        try:
            converted = convert(value)
        except (ValueError, InvalidOperation):
            raise _misfit(kind, value, path) from None
        if converted is not None:
            return converted
    if kind.kind in ("float", "double") and value in _NOT_FINITE:
        return float(value)
    if not _FITS[kind.kind](kind, value):
        raise _misfit(kind, value, path)
    if kind.kind in ("bytes", "fixed") and isinstance(value, str):
        return value.encode("latin-1")
    return value


def _is_bytes(_kind: AvroType, value: Any) -> bool:
    return isinstance(value, bytes | bytearray) or (isinstance(value, str) and all(char <= "\xff" for char in value))


def _is_whole(kind: AvroType, value: Any) -> bool:
    most = _RANGES[kind.kind]
    return isinstance(value, int) and not isinstance(value, bool) and -most <= value < most


def _is_number(_kind: AvroType, value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_FITS: Final[dict[str, Callable[[AvroType, Any], bool]]] = {
    "null": lambda _, value: value is None,
    "boolean": lambda _, value: isinstance(value, bool),
    "int": _is_whole,
    "long": _is_whole,
    "float": _is_number,
    "double": _is_number,
    "bytes": _is_bytes,
    "string": lambda _, value: isinstance(value, str),
    "fixed": lambda kind, value: isinstance(kind, Fixed) and _is_bytes(kind, value) and len(value) == kind.size,
    "enum": lambda kind, value: isinstance(kind, Enum) and value in kind.symbols,
}


def _decimal(value: Any) -> Decimal | None:
    # A float has lost digits: 0.1 is no decimal of two digits.
    number = Decimal(str(value)) if isinstance(value, int | float | str) else value
    if not isinstance(number, Decimal):
        return None
    # fastavro would write out all zeros of 1e999999999.
    if not number.is_finite() or abs(number.adjusted()) > MAX_DIGITS:
        raise ValueError
    return number


def _uuid(value: Any) -> UUID | None:
    return value if isinstance(value, UUID) else UUID(value) if isinstance(value, str) else None


def _timestamp(value: Any) -> datetime | None:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def _local_timestamp(value: Any) -> datetime | None:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return value.replace(tzinfo=None) if isinstance(value, datetime) else None


def _date(value: Any) -> date | None:
    return value if isinstance(value, date) else date.fromisoformat(value) if isinstance(value, str) else None


def _time(value: Any) -> time | None:
    return value if isinstance(value, time) else time.fromisoformat(value) if isinstance(value, str) else None


_NOT_FINITE: Final = ("NaN", "Infinity", "-Infinity")
_LOGICAL: Final[dict[str, Callable[[Any], Any]]] = {
    "decimal": _decimal,
    "uuid": _uuid,
    "date": _date,
    "time-millis": _time,
    "time-micros": _time,
    "timestamp-millis": _timestamp,
    "timestamp-micros": _timestamp,
    "local-timestamp-millis": _local_timestamp,
    "local-timestamp-micros": _local_timestamp,
}
"""Logical types, each with a function that returns None for a value that is one of the underlying type."""


def _name(kind: AvroType) -> str:
    return kind.full_name if isinstance(kind, Named) else kind.kind


def _misfit(kind: AvroType, value: Any, path: str) -> NotWritable:
    logical = kind.properties.get("logicalType")
    name = _name(kind) + (f" ({logical})" if logical else "")
    return NotWritable(f"{path} is {_shown(value)}, and its type is {name}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
