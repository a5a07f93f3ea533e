"""Types of decoded values as Spark and tables have them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from oncelog.base.units import INT64_MAX

_MAX_MILLIS: Any = INT64_MAX // 1000

# Arrow has more types than Spark. Nothing is rounded but times, to microseconds.
#
# | decoded | in Spark |
# |---|---|
# | enum | STRING |
# | unsigned 32 and 64 bits | BIGINT, DECIMAL(20, 0) |
# | times of day | INT of milliseconds, BIGINT of microseconds, as `from_avro` has them |
# | timestamps of any unit | TIMESTAMP or TIMESTAMP_NTZ; null beyond 64-bit microseconds |
# | durations | BIGINT of microseconds |
# | decimals of more than 38 digits | STRING |
# | bytes of a fixed size | BINARY |
# | only null | STRING |


def storable(kind: Any) -> pa.DataType:
    """The type that Spark has for a decoded one."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([(field.name, storable(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(storable(kind.key_type), storable(kind.item_type))
    if types.is_list(kind):
        return pa.list_(storable(kind.value_type))
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return _scalar(kind)


def _scalar(kind: Any) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(kind) or types.is_null(kind) or types.is_decimal256(kind):
        return pa.string()
    if types.is_fixed_size_binary(kind) and not types.is_decimal(kind):
        return pa.binary()
    if types.is_uint64(kind):
        return pa.decimal128(20, 0)
    if types.is_uint32(kind) or types.is_duration(kind) or types.is_time64(kind):
        return pa.int64()
    result: pa.DataType = pa.int32() if types.is_time32(kind) else kind
    return result


def converted(array: Any, kind: Any) -> Any:
    """An array as its storable type, or as a wider column of a table."""
    if array.type == kind:
        return array
    return _without_far_times(array).cast(kind, safe=False)


def _without_far_times(array: Any) -> Any:
    # Null for milliseconds that microseconds cannot hold: a cast would make other times of them.
    types, kind = pa.types, array.type
    if types.is_timestamp(kind) and kind.unit == "ms":
        return _near(array)
    if not types.is_nested(kind):
        return array
    if array.offset:
        array = array.take(pa.array(range(len(array))))
    buffers = array.buffers()
    if types.is_struct(kind):
        fields = [_without_far_times(array.field(place)) for place in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, len(array), buffers[:1], children=fields)
    if types.is_map(kind):
        entries = [array.keys, _without_far_times(array.items)]
        content = pa.StructArray.from_arrays(entries, fields=[kind.key_field, kind.item_field])
    else:
        content = _without_far_times(array.values)
    return pa.Array.from_buffers(kind, len(array), buffers[:2], children=[content])


def _near(array: Any) -> Any:
    numbers = array.view(pa.int64())
    is_near = pc.and_(pc.greater_equal(numbers, -_MAX_MILLIS), pc.less_equal(numbers, _MAX_MILLIS))
    return pc.if_else(is_near, array, pa.scalar(None, array.type))
