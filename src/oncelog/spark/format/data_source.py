"""The data source ``format("oncelog")``: topics as a Spark source and sink, batch and streaming, in Python.

Columns and option names are those of Spark's Kafka connector. Driver and tasks share only the options and the offsets
that Spark keeps, in the connector's JSON with additional notes.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
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
from oncelog.spark.session.sessions import check_server, hide_secrets, is_connect
from oncelog.spark.source.options import SourceOptions, names_registry, parse_options

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
    return StructType(list(_COLUMNS))


def source_schema(options: SourceOptions) -> StructType:
    """The columns of a query: the connector's, with text for the value if ``value.format=utf8``."""
    columns = [*_COLUMNS, StructField("headers", ArrayType(_HEADER))] if options.include_headers else list(_COLUMNS)
    if options.value_as_text:
        columns[_VALUE] = StructField("value", StringType())
    if options.decode_json is not None:
        columns += JsonDecoding.parse(options.decode_json).added_columns()
    for text in options.decode_registry:
        from oncelog.spark.registry_values.decoding import RegistryDecoding

        decoding = RegistryDecoding.parse(text)
        if decoding.columns is None:
            place = [column.name for column in columns].index(decoding.part)
            columns[place] = StructField(decoding.part, decoding.field_type())
        columns += decoding.added_columns()
    return StructType(columns)


class OncelogSource(DataSource):
    _registry_options: tuple[str, ...] | None = None

    @classmethod
    def name(cls) -> str:
        return SHORT_NAME

    def schema(self) -> StructType:
        """The columns. Raises OptionError, so that a wrong option fails when the query is built."""
        return source_schema(self._parsed())

    def reader(self, schema: StructType) -> DataSourceReader:
        # Imported on first use: Spark starts a process for each planning step, and each imports this module.
        from oncelog.spark.source.readers import batch_reader

        return batch_reader(self._checked(self._parsed().check_batch(), schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
        from oncelog.spark.source.readers import stream_reader

        try:
            options = self._checked(self._parsed().check_stream(), schema)
        except OptionError as error:
            from oncelog.spark.source.readers import RejectedReader

            # Spark's runner of streams fails with its own error if streamReader raises.
            return RejectedReader(error)
        return stream_reader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from oncelog.spark.sink.data_writer import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - PySpark's name
        from oncelog.spark.sink.data_writer import stream_writer

        return stream_writer(self.options, schema)

    def _parsed(self) -> SourceOptions:
        options = parse_options(self.options)
        if not names_registry(self.options):
            return options
        from oncelog.spark.source.registry_options import resolved_options

        # Asked once: a schema that is registered meanwhile is for the next start.
        if self._registry_options is None:
            self._registry_options = resolved_options(options, self.options)
        return replace(options, decode_registry=self._registry_options)

    def _checked(self, options: SourceOptions, schema: StructType) -> SourceOptions:
        if schema != source_schema(options):
            raise OptionError("Kafka source has a fixed schema and cannot be set with a custom one")
        return options


def register(spark: SparkSession) -> None:
    """Make ``format("oncelog")`` known to a session, as Spark itself does with an installed package.

    Call this for sessions started before the installation, or if Spark's search times out on a busy machine. With Spark
    Connect it raises ServerLacksOncelog, which tells what to install, if the server cannot import oncelog.
    """
    from oncelog.spark.session import versions

    if is_connect(spark):
        hide_secrets(spark)
        with suppress(ServerLacksOncelog):  # may be registered for this session only
            check_server(spark)
            return
    versions.register(spark, OncelogSource)
    check_server(spark)
