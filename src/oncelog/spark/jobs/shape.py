"""The shape of a table's rows: decoded values, event time, partition day, and which rows are bad and why.

The rules are in docs/jobs.md. Columns are only added. A bad row goes to the quarantine with its bytes and the reason:
never to the table, never lost; a missing event time makes one too. A null value's event time is the record's.

Tasks decode JSON as they read it (``json_values``); Spark's own functions do the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from oncelog.spark.json_values.decoding import BAD, EVENT_TIME, OTHER_FIELDS, RAW, RECORD, RESERVED, TIME, JsonDecoding
from oncelog.spark.json_values.times import FIRST_MICROS, LAST_MICROS, Path
from oncelog.spark.registry_values.decoding import RegistryDecoding, column_name
from oncelog.spark.session.errors import OptionError
from oncelog.spark.source.value_formats import FORMATS, decode_values
from oncelog.spark.table.directory import TableError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

QUARANTINE_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "reason")
_FORMATS: Final = (*FORMATS, "protobuf")
_WIDER: Final = {
    ("byte", "short"), ("byte", "integer"), ("byte", "long"), ("short", "integer"), ("short", "long"),
    ("integer", "long"), ("float", "double"), ("date", "timestamp"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """How records become rows. ``event_time`` is ``timestamp`` or a path into JSON values such as ``$.at``."""

    value_format: str = "binary"
    schema: str | None = None
    skip_bytes: int = 0
    partition_by: Literal["day", "hour"] | None = None
    event_time: str = "timestamp"
    registry: RegistryDecoding | None = None

    def __post_init__(self) -> None:
        if self.value_format not in _FORMATS:
            raise OptionError(f"the value format must be one of {', '.join(_FORMATS)}, got {self.value_format!r}")
        if self.registry is not None:
            self._check_registry(self.registry)
        elif self.value_format == "protobuf":
            raise OptionError("value format protobuf needs a schema registry: give one")
        elif self.decodes_fields and not self.schema:
            raise OptionError(f"value format {self.value_format} needs a schema: give one")
        if self.schema and not self.decodes_fields:
            raise OptionError(f"values in {self.value_format} have no schema: omit it, or choose json or avro")
        if self.event_time != "timestamp" and not self.event_time.startswith("$"):
            raise OptionError(
                f"the event time must be 'timestamp' or a JSON path such as $.at, got {self.event_time!r}"
            )
        if self.event_time != "timestamp":
            Path(self.event_time)
            if self.value_format in ("avro", "protobuf") or self.registry is not None:
                raise OptionError(
                    f"the event time {self.event_time} is a path into JSON, and the values are in {self.value_format}: "
                    "omit it to use the record's timestamp"
                )

    @property
    def decodes_fields(self) -> bool:
        """True if the fields of values become columns."""
        return self.value_format in ("json", "avro", "protobuf")

    @property
    def is_plain(self) -> bool:
        """True if rows stay as they are, so that none can be bad."""
        return self == PLAIN

    def _check_registry(self, registry: RegistryDecoding) -> None:
        kind = registry.schema.type.value.lower()
        if self.value_format != kind:
            raise OptionError(
                f"subject {registry.subject!r} has a schema in {kind}, and the value format is {self.value_format}: "
                "they must be the same"
            )
        if self.schema or self.skip_bytes:
            raise OptionError("the registry has the schema, and knows the bytes before a value: omit schema and bytes")

    def current(self) -> Shape:
        """The shape with the schema that the registry has now. Raises OptionError."""
        return self if self.registry is None else replace(self, registry=self.registry.current())

    def decoding(self, columns: StructType | None) -> JsonDecoding | RegistryDecoding | None:
        if self.registry is not None:
            return self.registry.with_columns(columns)
        path = None if self.event_time == "timestamp" else self.event_time
        if self.value_format != "json":
            return None if path is None else JsonDecoding(None, self.skip_bytes, path)
        # Not from_json, which rounds, wraps, and stops at the end of the first document.
        return JsonDecoding(columns, self.skip_bytes, path)

    def settings(self) -> dict[str, Any]:
        return {"valueFormat": self.value_format, "partitionBy": self.partition_by, "eventTime": self.event_time}


PLAIN: Final = Shape()


def shaped(frame: DataFrame, shape: Shape, columns: StructType | None) -> DataFrame:
    """The table's columns from the source's, with ``_bad`` (a bad row's reason, or null) and the raw ``_value``.
    ``columns`` are the table's decoded fields (``merged_columns``)."""
    from pyspark.sql import functions as f

    record_columns = [f.col(name) for name in RECORD if name in frame.columns]
    frame = frame.withColumn(RAW, f.col("value"))
    if shape.value_format == "avro" and shape.registry is None:
        frame = decode_values(frame, "avro", shape.schema, skip_bytes=shape.skip_bytes, options={"mode": "PERMISSIVE"})
    value_columns, bad = _columns_of_values(frame, shape, columns)
    time = f.col("timestamp" if shape.event_time == "timestamp" else TIME)
    reason = f.coalesce(*([f.col(BAD)] if BAD in frame.columns else []), *bad, _bad_time(shape, time))
    if shape.event_time != "timestamp":
        value_columns.append(time.alias(EVENT_TIME))
    return frame.select(*record_columns, *value_columns, *_levels(shape, time), reason.alias(BAD), f.col(RAW))


def good_rows(frame: DataFrame, shape: Shape) -> DataFrame:
    """The rows for the table, sorted within each task as in its files."""
    from pyspark.sql import functions as f

    good = frame.where(f.col(BAD).isNull()).drop(BAD, RAW)
    order = {None: (), "day": ("day",), "hour": ("day", "hour")}[shape.partition_by]
    return good.sortWithinPartitions(*order, "offset") if order else good


def bad_rows(frame: DataFrame) -> DataFrame:
    """The rows for the quarantine: place, bytes, and reason."""
    from pyspark.sql import functions as f

    bad = frame.where(f.col(BAD).isNotNull()).drop("value")
    bad = bad.withColumnRenamed(RAW, "value").withColumnRenamed(BAD, "reason")
    names = [*QUARANTINE_COLUMNS[:-1], *(["headers"] if "headers" in bad.columns else []), "reason"]
    return bad.select(*names)


def schema_columns(frame: DataFrame, shape: Shape) -> StructType | None:
    """The fields of the shape's schema; None if values are not decoded into fields. Raises OptionError."""
    if not shape.decodes_fields:
        return None
    from pyspark.sql.types import StructField, StructType

    from oncelog.spark.json_values.kinds import check_names, kind_of

    columns = _schema_type(frame, shape)
    if not isinstance(columns, StructType):
        raise OptionError(f"the schema must describe a record with fields, got {columns.simpleString()}")
    if shape.registry is not None:
        columns = StructType([StructField(column_name(field.name), field.dataType) for field in columns])
    check_names(columns, "the schema")
    for field in columns:
        if shape.value_format == "json" and shape.registry is None:
            kind_of(field.dataType, field.name)
        if field.name.lower() in RESERVED:
            raise OptionError(
                f"the schema's field {field.name!r} has the name of one of the table's own columns: rename it"
            )
    return columns


def _schema_type(frame: DataFrame, shape: Shape) -> DataType:
    from pyspark.errors import PySparkException

    if shape.registry is not None:
        kind: DataType = shape.registry.field_type()
        return kind
    try:
        decoded = decode_values(frame, shape.value_format, shape.schema, skip_bytes=shape.skip_bytes)
        return decoded.schema["value"].dataType
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
        raise OptionError(f"the schema {(shape.schema or '')[:80]!r} cannot be used: {reason}") from None


def arrow_columns(frame: DataFrame, left_out: Sequence[str] = ()) -> pa.Schema:
    from pyspark.sql.types import StructType

    from oncelog.spark.session.versions import arrow_schema

    return arrow_schema(StructType([field for field in frame.schema if field.name not in (*left_out, BAD)]))


def merged_columns(existing: StructType | None, schema: StructType | None) -> StructType | None:
    """Merge the table's fields and the schema's (rule 2), all nullable. Raises TableError."""
    if schema is None:
        return None
    from pyspark.sql.types import StructField, StructType

    # Columns are only added: those that the schema omits stay.
    fields = {field.name: field.dataType for field in existing or ()}
    spelled = {name.lower(): name for name in reversed(fields)}
    for field in schema:
        same = spelled.setdefault(field.name.lower(), field.name)
        if same != field.name:
            raise TableError(
                f"columns {same!r} and {field.name!r} differ only in case, which Spark treats as one name: write the "
                "name as in the table, or rename the field"
            )
        # A wider type in the table already holds every value of the schema's.
        has = fields.setdefault(field.name, field.dataType)
        if has != field.dataType and (field.dataType.typeName(), has.typeName()) not in _WIDER:
            raise TableError(
                f"column {field.name!r} is {has.simpleString()} in the table and {field.dataType.simpleString()} in "
                "the schema: load it under another name, or into another directory"
            )
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def _columns_of_values(frame: DataFrame, shape: Shape, columns: StructType | None) -> tuple[list[Column], list[Column]]:
    from pyspark.sql import functions as f

    if shape.registry is not None:
        assert columns is not None
        return [f.col(quoted(field.name)) for field in columns], []
    match shape.value_format:
        case "json":
            assert columns is not None
            return [*(f.col(quoted(field.name)) for field in columns), f.col(OTHER_FIELDS)], []
        case "avro":
            assert columns is not None
            unread = f.col(RAW).isNotNull() & f.col("value").isNull()
            columns_read = [_avro_field(frame, field.name, field.dataType).alias(field.name) for field in columns]
            return columns_read, [f.when(unread, f.lit("not avro of this schema"))]
    cut = f.expr(f"substring(value, {shape.skip_bytes + 1})")
    if shape.value_format == "binary":
        return [cut.alias("value")], []
    text = cut.cast("string")
    return [text.alias("value")], [f.when(~f.is_valid_utf8(text), f.lit("not UTF-8"))]


def _avro_field(frame: DataFrame, name: str, kind: DataType) -> Column:
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    struct = frame.schema["value"].dataType
    assert isinstance(struct, StructType)
    return f.col("value").getField(name).cast(kind) if name in struct.names else f.lit(None).cast(kind)


def quoted(name: str) -> str:
    """Quote a column name that may contain dots or backticks."""
    return "`" + name.replace("`", "``") + "`"


def _bad_time(shape: Shape, time: Column) -> Column:
    from pyspark.sql import functions as f

    if shape.event_time != "timestamp":
        return f.when(time.isNull(), f.lit(f"no time at {shape.event_time}"))
    too_far = f.when(time.isNull(), f.lit("the record's timestamp is too far from 1970 for microseconds in 64 bits"))
    if shape.partition_by is None:
        return too_far
    outside = f.lit("the record's timestamp is not in the years 1 to 9999")
    return f.coalesce(too_far, f.when(in_readable_years("timestamp").isNull(), outside))


def in_readable_years(name: str) -> Column:
    """A column's times within the years 1 to 9999, the only valid ones in names of day directories and for pyiceberg;
    null for others."""
    from pyspark.sql import functions as f

    first, last = (f.timestamp_micros(f.lit(micros)) for micros in (FIRST_MICROS, LAST_MICROS))
    return f.when(f.col(name).between(first, last), f.col(name))


def _levels(shape: Shape, time: Column) -> Sequence[Column]:
    from pyspark.sql import functions as f

    if shape.partition_by is None:
        return ()
    day = f.to_date(time).alias("day")
    return (day, f.hour(time).alias("hour")) if shape.partition_by == "hour" else (day,)
