"""JSON values by the type of their column: which are of it, and what they become in Arrow.

The rule: a column holds exactly the value, or the value is not of the column's type. Nothing is cut, rounded to a
scale, wrapped around or read from text of another type. FLOAT and DOUBLE hold the nearest number they have, which is
what these types are; a number beyond their range is not of them.
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

_LARGEST_FLOAT: Final = (2 - 2**-24) * 2.0**127
"""From here on the nearest number of 32 bits is infinity."""
_SMALLEST_FLOAT: Final = 2.0**-150
"""Up to here it is zero."""
_NOT_ZERO: Final = re.compile(r"[1-9]")
_INTEGER_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}


class NotOfType(ValueError):
    """A value is not of the type of its column."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A column's type: ``convert`` makes Arrow's value of one from JSON (not null) or raises NotOfType."""

    arrow: pa.DataType
    convert: Callable[[Any], Any]
    as_they_are: frozenset[type] = frozenset()
    """Python types whose values Arrow takes without conversion, and refuses where they do not fit."""
    lacks: Callable[[Any], bool] | None = None
    """True for a value with fields that no column is for; None where there can be none."""


def kind_of(data_type: DataType, name: str) -> Kind:
    """The kind of a Spark type. Raises OptionError for a type that JSON values are not decoded into."""
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
            f"the schema's field {name!r} is {data_type.simpleString()}, and JSON values are not decoded into that: "
            "choose another type, or leave the field out and find it in other_fields"
        )
    return _SIMPLE[type_name]


def check_names(columns: StructType, where: str) -> None:
    """Raise OptionError if two fields have one name, which Spark sees in names that differ by case, too."""
    seen: dict[str, str] = {}
    for field in columns.fields:
        other = seen.get(field.name.lower())
        if other is not None:
            raise OptionError(f"{where} has {other!r} and {field.name!r}, which are one name for Spark: leave one out")
        seen[field.name.lower()] = field.name


def _checked(read: Callable[[Any], Any | None]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        converted = read(value)
        if converted is None:
            raise NotOfType
        return converted

    return convert


def _integer(bits: int) -> Kind:
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def convert(value: Any) -> int:
        if type(value) is int and least <= value <= most:
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
    """The bytes of base64 text with padding, which is the only text that they have."""
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
    convert_element, lacks = element.convert, element.lacks

    def convert(value: Any) -> list[Any]:
        if type(value) is not list:
            raise NotOfType
        return [None if item is None else convert_element(item) for item in value]

    def any_lacks(value: Any) -> bool:
        assert lacks is not None
        return any(item is not None and lacks(item) for item in value)

    return Kind(pa.list_(element.arrow), convert, lacks=lacks and any_lacks)


def _map(content: Kind) -> Kind:
    convert_content, lacks = content.convert, content.lacks

    def convert(value: Any) -> list[tuple[str, Any]]:
        if type(value) is not dict:
            raise NotOfType
        return [(key, None if item is None else convert_content(item)) for key, item in value.items()]

    def any_lacks(value: Any) -> bool:
        assert lacks is not None
        return any(item is not None and lacks(item) for item in value.values())

    return Kind(pa.map_(pa.string(), content.arrow), convert, lacks=lacks and any_lacks)


def _struct(data_type: StructType, name: str) -> Kind:
    kinds = {}
    check_names(data_type, f"the schema's field {name!r}")
    for field in data_type.fields:
        kinds[field.name] = kind_of(field.dataType, f"{name}.{field.name}")
    known = frozenset(kinds)
    inner = [(field, kind.lacks) for field, kind in kinds.items() if kind.lacks is not None]

    def convert(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise NotOfType
        return {
            field: None if value.get(field) is None else kind.convert(value[field]) for field, kind in kinds.items()
        }

    def lacks(value: Any) -> bool:
        if not value.keys() <= known:
            return True
        return any(value.get(field) is not None and inside(value[field]) for field, inside in inner)

    return Kind(pa.struct([pa.field(field, kind.arrow) for field, kind in kinds.items()]), convert, lacks=lacks)


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
