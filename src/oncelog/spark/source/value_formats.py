"""Decodes values with Spark's own functions, in batch and streaming queries alike: one call after ``load()``.

A Python data source cannot call these functions from a task. Text needs no decoding: use ``value.format=utf8``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from oncelog.spark.session.errors import OptionError
from oncelog.spark.session.sessions import is_connect

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

FORMATS: Final = ("json", "avro", "utf8", "binary")
_NO_AVRO: Final = "AVRO_NOT_LOADED"
_IN_DEFINITION: Final = "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION"
_INSIDE: Final = "value"
# Matches Spark's errors about an unreadable schema; the group is the reason.
_BAD_SCHEMA: Final = re.compile(
    r"\[(?:PARSE_\w+|UNSUPPORTED_DATATYPE|DATATYPE_MISMATCH\.INVALID_JSON_SCHEMA)\] (.*?)[.;]?(?: SQLSTATE.*)?$",
    re.MULTILINE,
)


def decode_values(
    frame: DataFrame,
    value_format: str,
    schema: str | StructType | None = None,
    *,
    column: str = "value",
    skip_bytes: int = 0,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Decode ``column`` of a frame; the other columns stay unchanged.

    ``value_format`` is ``json`` (``schema``: DDL such as ``"id BIGINT, name STRING"``, or a StructType), ``avro``
    (``schema``: Avro's JSON), ``utf8`` or ``binary``. ``skip_bytes`` skips a header: 5 for Confluent's serializers.
    ``options`` go to Spark's function (``mode``, ``columnNameOfCorruptRecord``, …). By default an invalid value becomes
    null.

    Raises OptionError for an unknown format, a missing or unreadable schema, and Avro without Spark's package.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions

    format_name = value_format.lower()
    if format_name not in FORMATS:
        raise OptionError(f"value.format must be one of {', '.join(FORMATS)}, got {value_format!r}")
    raw = functions.col(column)
    if skip_bytes:
        raw = functions.expr(f"substring(`{column}`, {int(skip_bytes) + 1})")
    try:
        decoded = frame.withColumn(column, _decoded(raw, format_name, schema, dict(options or {})))
        # A server parses the schema only when it analyses the frame.
        if isinstance(schema, str) and is_connect(frame):
            check_now(decoded)
        return decoded
    except AnalysisException as error:
        if isinstance(schema, str) and (reason := schema_problem(str(error))) is not None:
            raise OptionError(f"the schema {schema[:80]!r} cannot be read: {reason}") from None
        if _NO_AVRO not in str(error):
            raise
        package = f"org.apache.spark:spark-avro_2.13:{frame.sparkSession.version}"
        raise OptionError(
            f"value.format=avro needs Spark's Avro package: start the session with spark.jars.packages={package}"
        ) from None


def check_now(frame: DataFrame) -> None:
    """Make a server analyse a frame now, as a classic session does; not within a Declarative Pipeline's definitions,
    where nothing may be analysed and the run reports errors."""
    from pyspark.errors import PySparkException

    try:
        frame.schema  # noqa: B018 - makes the server analyse the frame
    except PySparkException as error:
        if _IN_DEFINITION not in str(error):
            raise


def schema_problem(text: str) -> str | None:
    """The reason in a Spark error about an unreadable schema; None for other errors."""
    match = _BAD_SCHEMA.match(text)
    return None if match is None else match[1]


def _decoded(raw: Column, value_format: str, schema: str | StructType | None, options: dict[str, str]) -> Column:
    from pyspark.sql import functions

    if value_format == "binary":
        return raw
    if value_format == "utf8":
        return raw.cast("string")
    if schema is None:
        raise OptionError(f"value.format={value_format} needs a schema: give one")
    if value_format == "json":
        return functions.from_json(raw.cast("string"), schema, options or None)
    if not isinstance(schema, str):
        raise OptionError("value.format=avro needs a schema in Avro's JSON, as text")
    from pyspark.sql.avro.functions import from_avro

    options = {"mode": "PERMISSIVE", **options}
    if "avroSchema" in options:
        options["avroSchema"] = _wrapped(options["avroSchema"])
    return from_avro(raw, _wrapped(schema), options).getField(_INSIDE)


def _wrapped(schema: str) -> str:
    # Wrap a schema in a record of one field, which has the field's bytes. For an unreadable record Spark returns a
    # record of nulls, which a valid one may be too; within another record it is null.
    try:
        parsed = json.loads(schema)
    except ValueError:
        raise OptionError(f"value.format=avro needs a schema in Avro's JSON, got {schema[:80]!r}") from None
    return json.dumps({"type": "record", "name": "OncelogValue", "fields": [{"name": _INSIDE, "type": parsed}]})
