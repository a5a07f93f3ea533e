"""The columns that a frame must have to be written: those of Spark's Kafka sink, and a timestamp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.spark.session.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_BYTES: Final = ("string", "binary")
_HEADER_TYPES: Final = ("array<struct<key:string,value:binary>>",)
_TYPES: Final = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": ("string",),
    "partition": ("int",),
    "headers": _HEADER_TYPES,
    "timestamp": ("timestamp",),
}


def check_schema(schema: StructType, topic: str | None) -> None:
    """Refuse a schema as Spark's Kafka sink does, which passes over other columns. Raises OptionError."""
    types = {field.name.lower(): field.dataType.simpleString() for field in schema.fields}
    if "value" not in types:
        raise OptionError("Required attribute 'value' not found")
    if topic is None and "topic" not in types:
        raise OptionError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    for name, allowed in _TYPES.items():
        found = types.get(name)
        if found is None or (name == "topic" and topic is not None):
            continue
        if found.split(" collate ")[0] not in allowed:
            raise OptionError(f"{name} attribute unsupported type {found}. {name} must be a(n) {' or '.join(allowed)}")
