"""The shape of a table's rows: decoded values, an event time, a day to be kept under, and which rows are bad and why.

Rules (docs/jobs.md says them to users):
  1. a schema's fields become the table's columns beside the record's own; a field that a value lacks is null;
  2. columns are only ever added: one that a later schema does not name stays, null in what is new; one whose type would
     have to change (other than to one that holds every value of both) is refused before anything is read;
  3. fields that no column is for are kept as they are in ``other_fields`` (JSON);
  4. a value that is not of its format, a field of another type than its column, a missing event time: the row is bad.
     It goes to the quarantine with its bytes and the reason: never to the table, never lost;
  5. a null value (a tombstone) is no bad row: its fields are null, its event time is the record's.
JSON is decoded in the tasks that read it (``json_values``): Spark's ``from_json`` rounds, wraps, and stops at the end
of the first document. The rest is done by Spark's own functions; nothing here looks at a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from oncelog.spark.json_values.decoding import BAD, OTHER_FIELDS, TIME, JsonDecoding
from oncelog.spark.json_values.times import FIRST_MICROS, LAST_MICROS, Path
from oncelog.spark.session.errors import OptionError
from oncelog.spark.source.value_formats import FORMATS, decode_values
from oncelog.spark.table.directory import TableError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

EVENT_TIME: Final = "event_time"
QUARANTINE_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "reason")
_RAW: Final = "_value"
_RECORD: Final = ("key", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
RESERVED: Final = frozenset(
    one.lower() for one in (*_RECORD, "value", OTHER_FIELDS, EVENT_TIME, BAD, TIME, _RAW, "day", "hour", "offsets")
)
_WIDER: Final = {
    ("byte", "short"), ("byte", "integer"), ("byte", "long"), ("short", "integer"), ("short", "long"),
    ("integer", "long"), ("float", "double"), ("date", "timestamp"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """The way records become rows. ``event_time`` is ``timestamp`` or a path into JSON values such as ``$.at``."""

    value_format: str = "binary"
    schema: str | None = None
    skip_bytes: int = 0
    partition_by: Literal["day", "hour"] | None = None
    event_time: str = "timestamp"

    def __post_init__(self) -> None:
        if self.value_format not in FORMATS:
            raise OptionError(f"the value format must be one of {', '.join(FORMATS)}, got {self.value_format!r}")
        if self.decodes_fields and not self.schema:
            raise OptionError(f"value format {self.value_format} needs a schema: give one")
        if self.schema and not self.decodes_fields:
            raise OptionError(f"values in {self.value_format} have no schema: leave it out, or choose json or avro")
        if self.event_time != "timestamp" and not self.event_time.startswith("$"):
            raise OptionError(
                f"the event time must be 'timestamp' or a JSON path such as $.at, got {self.event_time!r}"
            )
        if self.event_time != "timestamp":
            Path(self.event_time)
            if self.value_format == "avro":
                raise OptionError(
                    f"the event time {self.event_time} is a path into JSON, and the values are in avro: leave it out, "
                    "for the record's timestamp"
                )

    @property
    def decodes_fields(self) -> bool:
        """True if the fields of values become columns: JSON and Avro."""
        return self.value_format in ("json", "avro")

    @property
    def is_plain(self) -> bool:
        """True if rows are taken as they come, so that none can be bad."""
        return self == PLAIN

    def decoding(self, columns: StructType | None) -> JsonDecoding | None:
        """The decoding of JSON in the tasks that read values; None if there is none."""
        path = None if self.event_time == "timestamp" else self.event_time
        if self.value_format != "json":
            return None if path is None else JsonDecoding(None, self.skip_bytes, path)
        return JsonDecoding(columns, self.skip_bytes, path)

    def settings(self) -> dict[str, Any]:
        """The settings that stay the same for a table's life."""
        return {"valueFormat": self.value_format, "partitionBy": self.partition_by, "eventTime": self.event_time}


PLAIN: Final = Shape()


def shaped(frame: DataFrame, shape: Shape, columns: StructType | None) -> DataFrame:
    """``frame`` (the source's columns) with the table's columns, and those of ``_bad`` rows: reason, else null.

    ``columns`` are the decoded fields that the table has (``merged_columns``). The raw value stays as ``_value``.
    """
    from pyspark.sql import functions as f

    kept = [f.col(name) for name in _RECORD if name in frame.columns]
    frame = frame.withColumn(_RAW, f.col("value"))
    if shape.value_format == "avro":
        frame = decode_values(frame, "avro", shape.schema, skip_bytes=shape.skip_bytes, options={"mode": "PERMISSIVE"})
    own, bad = _columns_of_values(frame, shape, columns)
    time = f.col("timestamp" if shape.event_time == "timestamp" else TIME)
    reason = f.coalesce(*([f.col(BAD)] if BAD in frame.columns else []), *bad, _bad_time(shape, time))
    if shape.event_time != "timestamp":
        own.append(time.alias(EVENT_TIME))
    return frame.select(*kept, *own, *_levels(shape, time), reason.alias(BAD), f.col(_RAW))


def good_rows(frame: DataFrame, shape: Shape) -> DataFrame:
    """The rows for the table, sorted within a task as its files are to be."""
    from pyspark.sql import functions as f

    good = frame.where(f.col(BAD).isNull()).drop(BAD, _RAW)
    order = {None: (), "day": ("day",), "hour": ("day", "hour")}[shape.partition_by]
    return good.sortWithinPartitions(*order, "offset") if order else good


def bad_rows(frame: DataFrame) -> DataFrame:
    """The rows for the quarantine: their place in the log, their bytes, and the reason."""
    from pyspark.sql import functions as f

    bad = frame.where(f.col(BAD).isNotNull()).drop("value")
    bad = bad.withColumnRenamed(_RAW, "value").withColumnRenamed(BAD, "reason")
    names = [*QUARANTINE_COLUMNS[:-1], *(["headers"] if "headers" in bad.columns else []), "reason"]
    return bad.select(*names)


def schema_columns(frame: DataFrame, shape: Shape) -> StructType | None:
    """The fields of the shape's schema; None if values are not decoded into fields."""
    if not shape.decodes_fields:
        return None
    from pyspark.sql.types import StructType

    from oncelog.spark.json_values.kinds import check_names, kind_of

    columns = _schema_type(frame, shape)
    if not isinstance(columns, StructType):
        raise OptionError(f"the schema must be of a record with fields, got {columns.simpleString()}")
    check_names(columns, "the schema")
    for field in columns:
        if shape.value_format == "json":
            kind_of(field.dataType, field.name)
        if field.name.lower() in RESERVED:
            raise OptionError(
                f"the schema's field {field.name!r} has the name of one of the table's own columns: rename it"
            )
    return columns


def _schema_type(frame: DataFrame, shape: Shape) -> DataType:
    """The type of values of the shape's schema. Raises OptionError for a schema that Spark refuses."""
    from pyspark.errors import PySparkException

    try:
        decoded = decode_values(frame, shape.value_format, shape.schema, skip_bytes=shape.skip_bytes)
        return decoded.schema["value"].dataType
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
        raise OptionError(f"the schema {(shape.schema or '')[:80]!r} cannot be used: {reason}") from None


def arrow_columns(frame: DataFrame, left_out: Sequence[str] = ()) -> pa.Schema:
    """The columns of rows that ``good_rows`` or ``bad_rows`` gives, in Arrow's types."""
    from pyspark.sql.types import StructType

    from oncelog.spark.session.versions import arrow_schema

    return arrow_schema(StructType([one for one in frame.schema if one.name not in (*left_out, BAD)]))


def merged_columns(known: StructType | None, asked: StructType | None) -> StructType | None:
    """The table's fields and the schema's together (rule 2), all nullable. Raises TableError."""
    if asked is None:
        return None
    from pyspark.sql.types import StructField, StructType

    fields = {one.name: one.dataType for one in known or ()}
    spelled = {name.lower(): name for name in reversed(fields)}
    for one in asked:
        same = spelled.setdefault(one.name.lower(), one.name)
        if same != one.name:
            raise TableError(
                f"columns {same!r} and {one.name!r} differ by upper and lower case alone, which Spark takes for one "
                "name: write the name as in the table, or rename the field"
            )
        has = fields.setdefault(one.name, one.dataType)
        if has != one.dataType and (one.dataType.typeName(), has.typeName()) not in _WIDER:
            raise TableError(
                f"column {one.name!r} is {has.simpleString()} in the table and {one.dataType.simpleString()} in the "
                "schema: load it under another name, or into another directory"
            )
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def _columns_of_values(frame: DataFrame, shape: Shape, columns: StructType | None) -> tuple[list[Column], list[Column]]:
    """The table's columns from values, and reasons why a value is bad; null ones do not hold."""
    from pyspark.sql import functions as f

    match shape.value_format:
        case "json":
            assert columns is not None
            return [*(f.col(quoted(field.name)) for field in columns), f.col(OTHER_FIELDS)], []
        case "avro":
            assert columns is not None
            unread = f.col(_RAW).isNotNull() & f.col("value").isNull()
            own = [_avro_field(frame, one.name, one.dataType).alias(one.name) for one in columns]
            return own, [f.when(unread, f.lit("not avro of this schema"))]
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
    """A column's name where Spark would read dots and backticks in it."""
    return "`" + name.replace("`", "``") + "`"


def _bad_time(shape: Shape, time: Column) -> Column:
    """The reason why a row has no time that it can be kept under."""
    from pyspark.sql import functions as f

    if shape.event_time != "timestamp":
        return f.when(time.isNull(), f.lit(f"no time at {shape.event_time}"))
    none = f.when(time.isNull(), f.lit("the record's timestamp is too far from 1970 for microseconds in 64 bits"))
    if shape.partition_by is None:
        return none
    outside = f.lit("the record's timestamp is not in the years 1 to 9999")
    return f.coalesce(none, f.when(in_readable_years("timestamp").isNull(), outside))


def in_readable_years(name: str) -> Column:
    """A column's times of the years 1 to 9999, null instead of others: as days of directories they would be no dates,
    and pyiceberg fails at files that have them."""
    from pyspark.sql import functions as f

    first, last = (f.timestamp_micros(f.lit(one)) for one in (FIRST_MICROS, LAST_MICROS))
    return f.when(f.col(name).between(first, last), f.col(name))


def _levels(shape: Shape, time: Column) -> Sequence[Column]:
    from pyspark.sql import functions as f

    if shape.partition_by is None:
        return ()
    day = f.to_date(time).alias("day")
    return (day, f.hour(time).alias("hour")) if shape.partition_by == "hour" else (day,)
