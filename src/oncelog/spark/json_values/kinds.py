"""Converts JSON values to the types of their columns, as Arrow values.

A column holds exactly the JSON value, or the value is not of its type: nothing is truncated, rounded to a scale,
wrapped around or parsed from text. FLOAT and DOUBLE hold the nearest number, within their range.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from oncelog.spark.json_values.documents import Number
from oncelog.spark.json_values.times import days_of, local_micros_of, micros_of
from oncelog.spark.session.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

# A larger number rounds to infinity in 32 bits, a smaller one to zero.
_LARGEST_FLOAT: Final = (2 - 2**-24) * 2.0**127
_SMALLEST_FLOAT: Final = 2.0**-150
_NOT_ZERO: Final = re.compile(r"[1-9]")
_INTEGER_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}


class NotOfType(ValueError):
    """A value does not have the type of its column."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A column's type. ``convert`` turns a JSON value (not null) into an Arrow value or raises NotOfType."""

    arrow: pa.DataType
    convert: Callable[[Any], Any]
    # Python types that Arrow takes without conversion; it rejects values out of range.
    native_types: frozenset[type] = frozenset()
    # True for a value with fields that have no column; None if the type cannot have any.
    has_extra_fields: Callable[[Any], bool] | None = None


def kind_of(data_type: DataType, name: str) -> Kind:
    """The kind of a Spark type. Raises OptionError for a type that JSON values cannot be decoded into."""
    type_name = data_type.typeName()
    if type_name in _INTEGER_BITS:
        return _integer(_INTEGER_BITS[type_name])
    match type_name:
        case "decimal":
            return _decimal(data_type.precision, data_type.scale)  # type: ignore[attr-defined]
        case "array":
            return _array(kind_of(data_type.elementType, name))  # type: ignore[attr-defined]
        case "map" if data_type.keyType.typeName() == "string":  # type: ignore[attr-defined]
            return _map(kind_of(data_type.valueType, name))  # type: ignore[attr-defined]
        case "struct":
            return _struct(data_type, name)  # type: ignore[arg-type]
    if type_name not in _SIMPLE:
        raise OptionError(
            f"the schema's field {name!r} is {data_type.simpleString()}, which JSON values cannot be decoded into: "
            "choose another type, or omit the field and read it from other_fields"
        )
    return _SIMPLE[type_name]


def check_names(columns: StructType, place: str) -> None:
    """Raise OptionError if two names differ only by case, because Spark sees them as one."""
    seen: dict[str, str] = {}
    for field in columns.fields:
        other = seen.get(field.name.lower())
        if other is not None:
            raise OptionError(f"{place} has {other!r} and {field.name!r}, which are one name for Spark: omit one")
        seen[field.name.lower()] = field.name


def _checked(read: Callable[[Any], Any | None]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        converted = read(value)
        if converted is None:
            raise NotOfType
        return converted

    return convert


def _integer(bits: int) -> Kind:
    lower, upper = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def convert(value: Any) -> int:
        if type(value) is int and lower <= value <= upper:
            return value
        if type(value) is Number and value == "-0":
            return 0
        raise NotOfType

    arrow = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]
    return Kind(arrow, convert, frozenset({int}))


def _decimal(precision: int, scale: int) -> Kind:
    step = Decimal(1).scaleb(-scale)
    exact = Context(prec=precision + 1, traps=[Inexact, InvalidOperation])

    def convert(value: Any) -> Decimal:
        if type(value) is not int and type(value) is not Number:
            raise NotOfType
        try:
            number = Decimal(value)
            if number and number.adjusted() >= precision - scale:
                raise NotOfType
            return number.quantize(step, context=exact)
        except ArithmeticError:
            raise NotOfType from None

    return Kind(pa.decimal128(precision, scale), convert)


def _double(value: Any) -> float:
    if type(value) is not int and type(value) is not Number:
        raise NotOfType
    try:
        number = float(value)
    except OverflowError:
        raise NotOfType from None
    if not isfinite(number) or (number == 0 and _is_not_zero(value)):
        raise NotOfType
    return number


def _float(value: Any) -> float:
    number = _double(value)
    if abs(number) >= _LARGEST_FLOAT or (number and abs(number) <= _SMALLEST_FLOAT):
        raise NotOfType
    return number


def _is_not_zero(value: Any) -> bool:
    digits, _, _ = str(value).lower().partition("e")
    return _NOT_ZERO.search(digits) is not None


def _exactly(kind: type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if type(value) is not kind:
            raise NotOfType
        return value

    return convert


def _binary(value: Any) -> bytes:
    """Decode padded base64. Other spellings of the same bytes are rejected."""
    if type(value) is not str:
        raise NotOfType
    try:
        content = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise NotOfType from None
    if base64.b64encode(content).decode() != value:
        raise NotOfType
    return content


def _array(element: Kind) -> Kind:
    convert_element, has_extra_fields = element.convert, element.has_extra_fields

    def convert(value: Any) -> list[Any]:
        if type(value) is not list:
            raise NotOfType
        return [None if item is None else convert_element(item) for item in value]

    def any_lacks(value: Any) -> bool:
        assert has_extra_fields is not None
        return any(item is not None and has_extra_fields(item) for item in value)

    return Kind(pa.list_(element.arrow), convert, has_extra_fields=has_extra_fields and any_lacks)


def _map(content: Kind) -> Kind:
    convert_content, has_extra_fields = content.convert, content.has_extra_fields

    def convert(value: Any) -> list[tuple[str, Any]]:
        if type(value) is not dict:
            raise NotOfType
        return [(key, None if item is None else convert_content(item)) for key, item in value.items()]

    def any_lacks(value: Any) -> bool:
        assert has_extra_fields is not None
        return any(item is not None and has_extra_fields(item) for item in value.values())

    return Kind(pa.map_(pa.string(), content.arrow), convert, has_extra_fields=has_extra_fields and any_lacks)


def _struct(data_type: StructType, name: str) -> Kind:
    kinds = {}
    check_names(data_type, f"the schema's field {name!r}")
    for field in data_type.fields:
        kinds[field.name] = kind_of(field.dataType, f"{name}.{field.name}")
    names = frozenset(kinds)
    inner = [(field, kind.has_extra_fields) for field, kind in kinds.items() if kind.has_extra_fields is not None]

    def convert(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise NotOfType
        return {
            field: None if value.get(field) is None else kind.convert(value[field]) for field, kind in kinds.items()
        }

    def has_extra_fields(value: Any) -> bool:
        if not value.keys() <= names:
            return True
        return any(value.get(field) is not None and has_extra(value[field]) for field, has_extra in inner)

    return Kind(
        pa.struct([pa.field(field, kind.arrow) for field, kind in kinds.items()]),
        convert,
        has_extra_fields=has_extra_fields,
    )


_SIMPLE: Final = {
    "float": Kind(pa.float32(), _float),
    "double": Kind(pa.float64(), _double),
    "boolean": Kind(pa.bool_(), _exactly(bool), frozenset({bool})),
    "string": Kind(pa.string(), _exactly(str), frozenset({str})),
    "date": Kind(pa.date32(), _checked(days_of)),
    "timestamp": Kind(pa.timestamp("us", "UTC"), _checked(micros_of)),
    "timestamp_ntz": Kind(pa.timestamp("us"), _checked(local_micros_of)),
    "binary": Kind(pa.binary(), _binary),
}
