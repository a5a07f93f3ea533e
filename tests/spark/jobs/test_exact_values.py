"""A record's value is in the table exactly, or in the quarantine; no record ends a load or keeps an export back."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.spark import OptionError, load
from oncelog.spark.export import export
from oncelog.spark.jobs.shape import Shape, schema_columns
from tests.spark.conftest import Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TIME: Final = 1_700_000_000_000
SCHEMA: Final = (
    "id BIGINT, t TINYINT, d DECIMAL(20,4), x DOUBLE, y FLOAT, at TIMESTAMP, n TIMESTAMP_NTZ, dt DATE, b BINARY, "
    "s STRING, l ARRAY<STRUCT<q:INT>>, m MAP<STRING,STRUCT<z:TIMESTAMP>>, o STRUCT<i:INT,j:ARRAY<STRING>>, ok BOOLEAN, "
    "`we.ird` INT"
)
EXACT: Final = [
    rb'{"id":9223372036854775807,"t":-128,"d":1.5000,"x":0.1,"y":1.1,"at":"2013-06-01T12:30:00.123456Z",'
    rb'"n":"2013-06-01T12:30:00.000001","dt":"0001-01-01","b":"/+8=","s":"\u2028\"\\\u0000","l":[{"q":1},null,{}],'
    rb'"m":{"a":{"z":-1},"b":null,"":{}},"o":{"i":null,"j":[null,"x"]},"ok":false,"we.ird":7}',
    b'{"id":1,"p":1.10,"o":{"i":1,"zz":1.50},"l":[{"q":2,"r":[1.10]}]}',
    b"{}",
    None,
    b'{"id":null}',
    b'{"o":{}}',
    b'{"l":[],"m":{}}',
    b'{"at":"0001-01-01T00:00:00Z"}',
    b'{"at":"9999-12-31T23:59:59.999999Z","dt":"9999-12-31"}',
    b'{"at":1370044800000}',
    b'{"x":1e308,"y":3.4e38,"d":-0.0001}',
    b'{"x":-0.0,"d":9999999999999999.9999}',
    b'{"other":null}',
]
BAD: Final = [
    (b'{"id":1}{"id":2}', "not JSON: something follows the document at character 9"),
    (b'{"id":1,"s":"\xff\xfe"}', "not JSON: byte 14 is not UTF-8"),
    (b'{"t":200}', "field t is not tinyint"),
    (b'{"d":1.23456}', "field d is not decimal(20,4)"),
    (b'{"at":"12:30:00"}', "field at is not timestamp"),
    (b'{"at":1370044800000000000}', "field at is not timestamp"),
    (b"{'id':1}", "not JSON: expecting property name enclosed in double quotes at character 2"),
    (b'{"id":1,"id":2}', "not JSON: the name 'id' is twice in one object"),
    (b"[" * 50_000, "not JSON: it is nested too deeply"),
]


def send(topic: Topic, *values: bytes | None, times: Sequence[int] = ()) -> None:
    with Client(topic.bootstrap_servers) as client:
        for at, value in enumerate(values):
            record = Record(-1, times[at] if times else TIME, b"k", value, ())
            client.produce(topic.partition(0), build_batch([record]))


def documents(spark: SparkSession, place: Path) -> list[tuple[int, str]]:
    """The decoded columns of each row, as text: Python has no times of the year 1 in every zone."""
    columns = "to_json(struct(* EXCEPT (topic, partition, offset, timestamp, timestampType)), map('timestampFormat', "
    columns += "'yyyy-MM-dd HH:mm:ss.SSSSSS')) AS document"
    rows = spark.read.parquet(str(place)).selectExpr("offset", columns).orderBy("offset").collect()
    return [(row.offset, row.document) for row in rows]


def test_values_are_exact_or_bad_and_an_export_gives_the_same_rows_again(
    spark: SparkSession, topic_with: Callable[..., Topic], tmp_path: Path
) -> None:
    topic, copy = topic_with(0, partitions=1), topic_with(0, partitions=1)
    send(topic, *EXACT, *(value for value, _ in BAD))
    servers, shape = topic.bootstrap_servers, Shape("json", SCHEMA)
    report = load(topic.name, servers, tmp_path / "a", spark=spark, shape=shape)
    assert (report.rows, report.quarantined) == (len(EXACT), len(BAD))
    bad = spark.read.parquet(str(tmp_path / "a/_quarantine")).orderBy("offset").collect()
    assert [(bytes(row.value), row.reason) for row in bad] == BAD
    rows = documents(spark, tmp_path / "a")
    first = json.loads(rows[0][1])
    assert (first["d"], first["at"], first["l"]) == (1.5, "2013-06-01 12:30:00.123456", [{"q": 1}, None, {}])
    assert json.loads(rows[1][1])["other_fields"] == ('{"p":1.10,"l":[{"q":2,"r":[1.10]}],"o":{"i":1,"zz":1.50}}')
    export(tmp_path / "a", copy.name, servers, spark=spark)
    sent = [row.value and bytes(row.value) for row in copy.read(spark).orderBy("offset").collect()]
    assert sent[1:6] == [
        b'{"id":1,"p":1.10,"l":[{"q":2,"r":[1.10]}],"o":{"i":1,"zz":1.50}}',
        b"{}",
        None,
        b"{}",
        b'{"o":{}}',
    ]
    assert load(copy.name, servers, tmp_path / "b", spark=spark, shape=shape).rows == len(EXACT)
    assert documents(spark, tmp_path / "b") == rows


def test_an_event_time_that_is_none_is_a_bad_row(
    spark: SparkSession, topic_with: Callable[..., Topic], tmp_path: Path
) -> None:
    topic = topic_with(0, partitions=1)
    times = [b"1370044800000", b"1370044800000000000", b'"2013-06-02T00:00:00+02:00"', b"-9223372036854775808", b"1e30"]
    send(topic, *(b'{"id":1,"at":%s}' % at for at in times), None)
    shape = Shape("json", "id INT", event_time="$.at", partition_by="day")
    report = load(topic.name, topic.bootstrap_servers, tmp_path, spark=spark, shape=shape)
    assert (report.rows, report.quarantined) == (3, 3)
    days = spark.read.parquet(str(tmp_path)).orderBy("offset").selectExpr("offset", "string(day)").collect()
    assert [tuple(row) for row in days] == [(0, "2013-06-01"), (2, "2013-06-01"), (5, "2023-11-14")]
    reasons = {row.reason for row in spark.read.parquet(str(tmp_path / "_quarantine")).collect()}
    assert reasons == {"the value at $.at is not a time in the years 1 to 9999"}


def test_records_of_any_time_are_loaded_and_exported(
    spark: SparkSession, topic_with: Callable[..., Topic], tmp_path: Path
) -> None:
    topic, copy = topic_with(0, partitions=1), topic_with(0, partitions=1)
    times = [-5, -1, 0, -(2**62), -(2**53), TIME]
    send(topic, *(b'{"id":%d}' % at for at in range(len(times))), times=times)
    servers = topic.bootstrap_servers

    def micros(place: Path) -> list[Any]:
        rows = spark.read.parquet(str(place)).selectExpr("offset", "unix_micros(timestamp) AS at").orderBy("offset")
        return [row["at"] for row in rows.collect()]

    load(topic.name, servers, tmp_path / "plain", spark=spark)
    assert micros(tmp_path / "plain") == [-5000, -1000, 0, None, -(2**53) * 1000, TIME * 1000]
    export(tmp_path / "plain", copy.name, servers, spark=spark)
    load(copy.name, servers, tmp_path / "copy", spark=spark)
    assert micros(tmp_path / "copy") == [-5000, -1000, 0, -1000, -(2**53) * 1000, TIME * 1000]
    by_day = Shape("json", "id INT", partition_by="day")
    report = load(topic.name, servers, tmp_path / "days", spark=spark, shape=by_day)
    assert (report.rows, report.quarantined) == (4, 2)
    with Client(servers) as client:
        create_topic(client, NewTopic("bad-times", 1, configs={"max.message.bytes": "3000"}))
    text = Shape("json", "id INT")
    send(topic, b"not json", b"x" * 5000, b'{"id":9}', times=[-5, TIME, TIME])
    report = load(topic.name, servers, tmp_path / "q", spark=spark, shape=text, quarantine_topic="bad-times")
    assert (report.rows, report.quarantined) == (6, 3)
    assert load(topic.name, servers, tmp_path / "q", spark=spark, shape=text, quarantine_topic="bad-times").rows == 0


def test_a_schema_that_cannot_be_is_refused_in_one_line(
    spark: SparkSession, topic_with: Callable[..., Topic], tmp_path: Path
) -> None:
    refused = {
        "a CHAR(2)": "the schema 'a CHAR(2)' cannot be used: ",
        "a MAP<INT,INT>": "the schema 'a MAP<INT,INT>' cannot be used: ",
        "a INTERVAL DAY": "the schema's field 'a' is interval day, which JSON values cannot be decoded into",
        "a STRUCT<v:VARIANT>": "the schema's field 'a.v' is variant, which JSON values cannot be decoded into",
        "a INT, A INT": "the schema has 'a' and 'A', which are one name for Spark",
        "a UNKNOWN": "the schema 'a UNKNOWN' cannot be read: ",
    }
    values = spark.range(0).selectExpr("CAST(NULL AS BINARY) AS value")
    for schema, reason in refused.items():
        with pytest.raises(OptionError) as error:
            schema_columns(values, Shape("json", schema))
        assert str(error.value).startswith(reason)
        assert "\n" not in str(error.value)
    topic = topic_with(1)
    with pytest.raises(OptionError, match="the schema 'a CHAR"):
        load(topic.name, topic.bootstrap_servers, tmp_path, spark=spark, shape=Shape("json", "a CHAR(2)"))
