"""Types of decoded values as Spark and tables have them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

# Arrow has more types than Spark. Nothing is rounded but times, to microseconds.
#
# | decoded | in Spark |
# |---|---|
# | enum | STRING |
# | unsigned 32 and 64 bits | BIGINT, DECIMAL(20, 0) |
# | times of day | INT of milliseconds, BIGINT of microseconds, as `from_avro` has them |
# | timestamps of any unit | TIMESTAMP or TIMESTAMP_NTZ |
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
    return array if array.type == kind else array.cast(kind, safe=False)
