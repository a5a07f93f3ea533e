"""Wrong options and schemas fail when the query is written, and say which and why."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from oncelog.records.compression import Codec
from oncelog.spark.session.errors import OptionError
from oncelog.spark.sink.data_writer import batch_writer, stream_writer
from oncelog.spark.sink.options import Mode, check_schema, parse_sink_options

SERVERS = {"kafka.bootstrap.servers": "localhost:1"}
VALUE = StructType([StructField("value", StringType())])


def test_defaults_and_names_in_any_case() -> None:
    options = parse_sink_options({**SERVERS, "EXACTLYONCE": "2PC", "kafka.compression.type": "lz4", "JobId": "nightly"})
    assert (options.mode, options.producer.codec, options.job_id) == (Mode.TWO_PHASE, Codec.LZ4, "nightly")
    assert parse_sink_options(SERVERS).mode is Mode.AUTO


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "kafka.bootstrap.servers' must be specified"),
        ({**SERVERS, "exactlyOnce": "maybe"}, "exactlyOnce must be 'auto', '2pc', 'ledger' or 'off', got 'maybe'"),
        ({**SERVERS, "kafka.acks": "1"}, "kafka.acks must be 'all'"),
        ({**SERVERS, "kafka.transactional.id": "mine"}, "the sink names its own transactions"),
        ({**SERVERS, "kafka.compression.type": "rar"}, "kafka.compression.type must be one of"),
        ({**SERVERS, "jobId": "a/b"}, "jobId must be"),
        ({**SERVERS, "acceptLoss": "-1"}, "acceptLoss must be a whole number from 0 on, got '-1'"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse_sink_options(given)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([("key", StringType())], "Required attribute 'value' not found"),
        (
            [("value", IntegerType()), ("topic", StringType())],
            r"value attribute unsupported type int\. value must be a\(n\) string or binary",
        ),
        ([("value", StringType())], "topic option required when no 'topic' attribute is present"),
        ([("value", StringType()), ("topic", IntegerType())], "topic attribute unsupported type int"),
    ],
)
def test_a_schema_that_cannot_be_written_is_refused(columns: list[tuple[str, object]], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        check_schema(StructType([StructField(name, kind) for name, kind in columns]), None)


def test_columns_that_the_connector_passes_over_are_passed_over() -> None:
    columns = [("value", StringType()), ("offset", IntegerType()), ("topic", IntegerType())]
    check_schema(StructType([StructField(name, kind) for name, kind in columns]), "named")
    assert parse_sink_options({**SERVERS, "kafka.batch.size": "0"}).producer.batch_bytes == 1


def test_overwriting_a_topic_and_naming_a_stream_are_refused() -> None:
    with pytest.raises(OptionError, match="overwrite not allowed"):
        batch_writer(SERVERS, VALUE, overwrite=True)
    with pytest.raises(OptionError, match="jobId is only for batch writes"):
        stream_writer({**SERVERS, "jobId": "x"}, VALUE)
