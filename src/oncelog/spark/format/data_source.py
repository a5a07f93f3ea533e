"""``format("oncelog")``: topics as a Spark source, batch and streaming, in Python (PySpark's Python data source API).

The columns and option names are those of Spark's Kafka connector, so a query changes by the name of its format only.
The driver plans offsets (``readers``, ``plan``), each task reads a range (``read``); nothing is
kept between them but the options and the offsets Spark itself keeps, in the connector's JSON with notes beside it.

Readers are imported when they are asked for: Spark makes a process for each step of planning, and each imports what is
named here.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from oncelog.spark.json_values.decoding import JsonDecoding
from oncelog.spark.session.errors import OptionError, ServerLacksOncelog
from oncelog.spark.session.sessions import check_server, is_connect
from oncelog.spark.source.options import SourceOptions, parse_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORT_NAME = "oncelog"

_COLUMNS = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]
_VALUE = 1
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


def connector_columns() -> StructType:
    """The columns of Spark's Kafka connector, without headers."""
    return StructType(list(_COLUMNS))


def source_schema(options: SourceOptions) -> StructType:
    """The columns a query gets: the connector's, with text for the value where ``value.format=utf8`` asks for it."""
    columns = [*_COLUMNS, StructField("headers", ArrayType(_HEADER))] if options.include_headers else list(_COLUMNS)
    if options.value_as_text:
        columns[_VALUE] = StructField("value", StringType())
    if options.decode_json is not None:
        columns += JsonDecoding.parse(options.decode_json).added_columns()
    return StructType(columns)


class OncelogSource(DataSource):
    """Topics of a Kafka cluster (oncelog or Apache Kafka) as a DataFrame."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return SHORT_NAME

    def schema(self) -> StructType:
        """The connector's columns. Raises OptionError, so that a wrong option fails when the query is written."""
        return source_schema(self._parsed())

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch query's reader."""
        from oncelog.spark.source.readers import batch_reader

        return batch_reader(self._checked(self._parsed().check_batch(), schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
        """A streaming query's reader."""
        from oncelog.spark.source.readers import stream_reader

        try:
            options = self._checked(self._parsed().check_stream(), schema)
        except OptionError as error:
            from oncelog.spark.source.readers import RefusedReader

            return RefusedReader(error)
        return stream_reader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write: the sink's (``oncelog.spark.sink``)."""
        from oncelog.spark.sink.data_writer import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - PySpark's name
        """A streaming query's sink."""
        from oncelog.spark.sink.data_writer import stream_writer

        return stream_writer(self.options, schema)

    def _parsed(self) -> SourceOptions:
        return parse_options(self.options)

    def _checked(self, options: SourceOptions, schema: StructType) -> SourceOptions:
        if schema != source_schema(options):
            raise OptionError("Kafka source has a fixed schema and cannot be set with a custom one")
        return options


def register(spark: SparkSession) -> None:
    """Make ``format("oncelog")`` known to a session.

    Spark finds it by itself where the package is installed; this is for sessions started before that was so, and for
    machines so busy that Spark gives up its search. Over Spark Connect it also asks whether the server can import it;
    raises ServerLacksOncelog, which says what to install.
    """
    from oncelog.spark.session import versions

    if is_connect(spark):
        with suppress(ServerLacksOncelog):  # not found by itself; it may be there for this session only
            check_server(spark)
            return
    versions.register(spark, OncelogSource)
    check_server(spark)
