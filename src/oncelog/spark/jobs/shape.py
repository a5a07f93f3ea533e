"""The shape of a table's rows: decoded values, an event time, a day to be kept under, and which rows are bad and why.

Rules (docs/jobs.md says them to users):
  1. a schema's fields become the table's columns beside the record's own; a field that a value lacks is null;
  2. columns are only ever added: one that a later schema does not name stays, null in what is new; one whose type would
     have to change (other than to one that holds every value of both) is refused before anything is read;
  3. fields that no column is for are kept as text in ``other_fields`` (JSON);
  4. a value that is not of its format, a field of another type than its column, a missing event time: the row is bad.
     It goes to the quarantine with its bytes and the reason: never to the table, never lost;
  5. a null value (a tombstone) is no bad row: its fields are null, its event time is the record's.
Everything is done by Spark's own functions; nothing here looks at a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from oncelog.spark.errors import OptionError
from oncelog.spark.source.value_formats import FORMATS, decode_values
from oncelog.spark.table.directory import TableError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

BAD: Final = "_bad"
OTHER_FIELDS: Final = "other_fields"
EVENT_TIME: Final = "event_time"
QUARANTINE_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "reason")
_CORRUPT: Final = "_corrupt"
_CUT: Final = "_cut"
_RECORD: Final = ("key", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
RESERVED: Final = frozenset(
    one.lower() for one in (*_RECORD, "value", OTHER_FIELDS, EVENT_TIME, BAD, _CORRUPT, _CUT, "day", "hour", "offsets")
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

    @property
    def decodes_fields(self) -> bool:
        """True if the fields of values become columns: JSON and Avro."""
        return self.value_format in ("json", "avro")

    @property
    def is_plain(self) -> bool:
        """True if rows are taken as they come, so that none can be bad."""
        return self == PLAIN

    def settings(self) -> dict[str, Any]:
        """The settings that stay the same for a table's life."""
        return {"valueFormat": self.value_format, "partitionBy": self.partition_by, "eventTime": self.event_time}


PLAIN: Final = Shape()


def shaped(frame: DataFrame, shape: Shape, columns: StructType | None) -> DataFrame:
    """``frame`` (the source's columns) with the table's columns, and those of ``_bad`` rows: reason, else null.

    ``columns`` are the decoded fields that the table has (``merged_columns``). The raw value stays as ``_value``.
    """
    from pyspark.sql import functions as f

    kept = [f.col(one) for one in frame.columns if one != "value"]
    raw = frame.withColumn("_value", f.col("value")).withColumn(
        _CUT, f.expr(f"substring(value, {shape.skip_bytes + 1})")
    )
    if shape.decodes_fields:
        assert columns is not None
        decoded = _decoded(raw, shape, columns)
        own = [_field(decoded, one.name, one.dataType).alias(one.name) for one in columns]
        if shape.value_format == "json":
            own.append(_other_fields(columns).alias(OTHER_FIELDS))
        bad = _bad_fields(decoded, shape, columns)
    else:
        decoded = raw
        own = [_text().alias("value") if shape.value_format == "utf8" else f.col(_CUT).alias("value")]
        bad = _not_text() if shape.value_format == "utf8" else f.lit(None).cast("string")
    time = _event_time(shape)
    bad = f.coalesce(bad, f.when(time.isNull(), f.lit(f"no time at {shape.event_time}")))
    if shape.event_time != "timestamp":
        own.append(time.alias(EVENT_TIME))
    return decoded.select(*kept, *own, *_levels(shape, time), bad.alias(BAD), f.col("_value"))


def good_rows(frame: DataFrame, shape: Shape) -> DataFrame:
    """The rows for the table, sorted within a task as its files are to be."""
    from pyspark.sql import functions as f

    good = frame.where(f.col(BAD).isNull()).drop(BAD, "_value")
    order = {None: (), "day": ("day",), "hour": ("day", "hour")}[shape.partition_by]
    return good.sortWithinPartitions(*order, "offset") if order else good


def bad_rows(frame: DataFrame) -> DataFrame:
    """The rows for the quarantine: their place in the log, their bytes, and the reason."""
    from pyspark.sql import functions as f

    bad = (
        frame.where(f.col(BAD).isNotNull()).drop("value")
        if "value" in frame.columns
        else frame.where(f.col(BAD).isNotNull())
    )
    bad = bad.withColumnRenamed("_value", "value").withColumnRenamed(BAD, "reason")
    names = [*QUARANTINE_COLUMNS[:-1], *(["headers"] if "headers" in bad.columns else []), "reason"]
    return bad.select(*names)


def schema_columns(frame: DataFrame, shape: Shape) -> StructType | None:
    """The fields of the shape's schema; None if values are not decoded into fields."""
    if not shape.decodes_fields:
        return None
    decoded = decode_values(frame, shape.value_format, shape.schema, skip_bytes=shape.skip_bytes)
    found = decoded.schema["value"].dataType
    from pyspark.sql.types import StructType

    if not isinstance(found, StructType):
        raise OptionError(f"the schema must be of a record with fields, got {found.simpleString()}")
    for one in found:
        if one.name.lower() in RESERVED:
            raise OptionError(
                f"the schema's field {one.name!r} has the name of one of the table's own columns: rename it"
            )
    return found


def merged_columns(known: StructType | None, asked: StructType | None) -> StructType | None:
    """The table's fields and the schema's together (rule 2), all nullable. Raises TableError."""
    if asked is None:
        return None
    from pyspark.sql.types import StructField, StructType

    fields = {one.name: one.dataType for one in known or ()}
    for one in asked:
        has = fields.setdefault(one.name, one.dataType)
        if has != one.dataType and (one.dataType.typeName(), has.typeName()) not in _WIDER:
            raise TableError(
                f"column {one.name!r} is {has.simpleString()} in the table and {one.dataType.simpleString()} in the "
                "schema: load it under another name, or into another directory"
            )
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def _decoded(frame: DataFrame, shape: Shape, columns: StructType) -> DataFrame:
    """``frame`` with ``value`` decoded into a struct; fields that cannot be read are null."""
    if shape.value_format != "json":
        return decode_values(
            frame, shape.value_format, shape.schema, skip_bytes=shape.skip_bytes, options={"mode": "PERMISSIVE"}
        )
    from pyspark.sql.types import StringType, StructField, StructType

    with_corrupt = StructType([*columns.fields, StructField(_CORRUPT, StringType())])
    return decode_values(
        frame, "json", with_corrupt, skip_bytes=shape.skip_bytes, options={"columnNameOfCorruptRecord": _CORRUPT}
    )


def _field(decoded: DataFrame, name: str, kind: DataType) -> Column:
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    struct = decoded.schema["value"].dataType
    assert isinstance(struct, StructType)
    return f.col("value").getField(name).cast(kind) if name in struct.names else f.lit(None).cast(kind)


def _text() -> Column:
    """The value as text, without its first ``skip_bytes``."""
    from pyspark.sql import functions as f

    return f.col(_CUT).cast("string")


def _path(name: str) -> str:
    return "$['" + name.replace("'", "\\'") + "']"


def _other_fields(columns: StructType) -> Column:
    """JSON of the fields that no column is for; null where there are none."""
    from pyspark.sql import functions as f

    names = f.array(*(f.lit(one.name) for one in columns))
    every = f.from_json(_text(), "MAP<STRING, STRING>")
    others = f.map_filter(every, lambda name, value: ~f.array_contains(names, name))
    return f.when(f.size(others) > 0, f.to_json(others))


def _bad_fields(decoded: DataFrame, shape: Shape, columns: StructType) -> Column:
    from pyspark.sql import functions as f

    value, raw = f.col("value"), f.col("_value")
    if shape.value_format != "json":
        return f.when(raw.isNotNull() & value.isNull(), f.lit(f"not {shape.value_format} of this schema"))
    conflicts = [
        f.when(value.getField(one.name).isNull() & f.get_json_object(_text(), _path(one.name)).isNotNull(),
               f.lit(f"field {one.name} is not {one.dataType.simpleString()}"))
        for one in columns
    ]  # fmt: skip
    which = f.concat_ws("; ", *conflicts)
    not_json = f.try_parse_json(_text()).isNull()
    broken = value.isNull() | value.getField(_CORRUPT).isNotNull()
    reason = f.when(not_json, f.lit("not JSON")).otherwise(
        f.when(which == "", f.lit("not a JSON object of this schema")).otherwise(which)
    )
    return f.when(raw.isNotNull() & broken, reason)


def _not_text() -> Column:
    from pyspark.sql import functions as f

    return f.when(~f.is_valid_utf8(_text()), f.lit("not UTF-8"))


def _event_time(shape: Shape) -> Column:
    from pyspark.sql import functions as f

    if shape.event_time == "timestamp":
        return f.col("timestamp")
    said = f.get_json_object(_text(), shape.event_time)
    read = f.coalesce(f.timestamp_millis(said.try_cast("bigint")), said.try_cast("timestamp"))
    return f.when(f.col("_value").isNull(), f.col("timestamp")).otherwise(read)


def _levels(shape: Shape, time: Column) -> Sequence[Column]:
    from pyspark.sql import functions as f

    if shape.partition_by is None:
        return ()
    day = f.to_date(time).alias("day")
    return (day, f.hour(time).alias("hour")) if shape.partition_by == "hour" else (day,)
