"""Loads, streams and exports through a server of Spark Connect, from a library and from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from oncelog.client.blocking import Client
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.spark import Shape, StreamRequest, decode_values, load, register, stream
from oncelog.spark.export import export
from oncelog.spark.session.errors import ServerLacksOncelog, SparkSourceError
from oncelog.spark.session.local_session import remote_session
from oncelog.spark.session.sessions import JobSession, check_shared
from oncelog.testing import Broker
from tests.spark.conftest import TIME, Topic
from tests.spark.documented_loop import run_documented_loop
from tests.spark.sink.queries import committed_values
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]

MakeTopic = Callable[..., Topic]
NOW = "available-now"


def values_in(place: Path) -> list[bytes]:
    rows = pq.read_table(place, columns=["value"])["value"].to_pylist()
    return sorted(row.encode() if isinstance(row, str) else row for row in rows)


def test_a_table_is_loaded_streamed_and_exported_and_no_setting_is_left_behind(
    connect: SparkSession, topic_with: MakeTopic, broker: Broker, tmp_path: Path
) -> None:
    connect.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    register(connect)  # hides passwords for as long as the session lives
    before = connect.conf.getAll
    topic = topic_with(40)
    shape = Shape("utf8", partition_by="day")
    assert load(topic.name, topic.bootstrap_servers, tmp_path, spark=connect, shape=shape).rows == 40
    topic.produce(30)
    request = StreamRequest(NOW)
    result = stream(
        topic.name,
        topic.bootstrap_servers,
        tmp_path,
        request,
        spark=connect,
        shape=shape,
        options={"maxOffsetsPerTrigger": "20"},
    )
    assert (result.rows, result.steps) == (30, 2)
    assert values_in(tmp_path) == topic.values()
    assert export(tmp_path, f"{topic.name}-out", topic.bootstrap_servers, spark=connect).rows == 70
    assert committed_values(topic.bootstrap_servers, f"{topic.name}-out") == topic.values()
    assert connect.conf.getAll == before


def test_json_values_are_exact_or_bad(connect: SparkSession, topic_with: MakeTopic, tmp_path: Path) -> None:
    topic, shape = topic_with(0, partitions=1), Shape("json", "d DECIMAL(10,2)", event_time="$.at")

    def send(*values: bytes) -> None:
        records = [Record(-1, TIME, None, value, ()) for value in values]
        with Client(topic.bootstrap_servers) as client:
            client.produce(topic.partition(0), build_batch(records))

    send(b'{"d":1.25,"at":5,"p":1.10}', b'{"d":1.239,"at":5}')
    report = load(topic.name, topic.bootstrap_servers, tmp_path, spark=connect, shape=shape)
    assert (report.rows, report.quarantined) == (1, 1)
    send(b'{"d":1.50,"at":6}{}', b'{"d":1.50,"at":6}')
    report = stream(topic.name, topic.bootstrap_servers, tmp_path, StreamRequest(NOW), spark=connect, shape=shape)
    assert (report.rows, report.quarantined) == (1, 1)
    assert export(tmp_path, f"{topic.name}-out", topic.bootstrap_servers, spark=connect).rows == 2
    sent = committed_values(topic.bootstrap_servers, f"{topic.name}-out")
    assert sorted(sent) == [b'{"d":1.25,"at":5,"p":1.10}', b'{"d":1.50,"at":6}']


def test_settings_are_set_back_after_an_error(connect: SparkSession) -> None:
    connect.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    before = connect.conf.getAll
    job = JobSession(connect, {"spark.sql.session.timeZone": "UTC", "spark.sql.adaptive.enabled": "false"})

    def fail() -> None:
        with job.settings():
            assert connect.conf.get("spark.sql.session.timeZone") == "UTC"
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert connect.conf.getAll == before


def test_values_are_decoded(connect: SparkSession, topic_with: MakeTopic) -> None:
    rows = topic_with(4, partitions=1).read(connect)
    assert decode_values(rows, "json", "a INT").select("value.a").first() == (None,)
    assert decode_values(rows, "utf8").select("value").first() == ("v0",)


def test_the_documented_loop_reads_all_that_is_there(
    connect: SparkSession, topic_with: MakeTopic, tmp_path: Path
) -> None:
    topic = topic_with(20)
    stream = connect.readStream.format("oncelog").option("kafka.bootstrap.servers", topic.bootstrap_servers)
    stream = stream.option("subscribe", topic.name).option("startingOffsets", "earliest")
    rows = stream.option("maxOffsetsPerTrigger", "8").option("limitFirstBatch", "true").load()
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    run_documented_loop(writer.option("path", str(tmp_path / "table")))
    assert values_in(tmp_path / "table") == topic.values()


def test_a_directory_that_the_server_does_not_see_is_refused(
    connect: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = JobSession(connect, {})
    check_shared(job, tmp_path)
    monkeypatch.setattr(Path, "absolute", lambda path: Path("/no/such/place") / path.name)
    with pytest.raises(SparkSourceError, match="does not see"):
        check_shared(job, tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_server_without_oncelog_is_told_what_to_install(
    connect: SparkSession, without_oncelog: Path, topic_with: MakeTopic, tmp_path: Path
) -> None:
    topic = topic_with(4)
    without_oncelog.touch()
    with pytest.raises(ServerLacksOncelog, match=r"no Python module 'oncelog'.*docs/deploy-spark.md"):
        register(connect)
    with pytest.raises(ServerLacksOncelog):
        load(topic.name, topic.bootstrap_servers, tmp_path, spark=connect)
    without_oncelog.unlink()
    assert load(topic.name, topic.bootstrap_servers, tmp_path, spark=connect).rows == 4


def test_the_commands_run_on_a_server(
    server: str, topic_with: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topic_with(20)
    table, servers = str(tmp_path / "table"), ["--bootstrap-servers", topic.bootstrap_servers, "--json"]

    def run(*arguments: str) -> dict[str, object]:
        command = [sys.executable, "-m", "oncelog", *arguments, *servers]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        decoded: dict[str, object] = json.loads(done.stdout)
        return decoded

    assert run("load", topic.name, "--to", table, "--remote", server)["rows"] == 20
    topic.produce(10)
    monkeypatch.setenv("SPARK_REMOTE", server)  # as Spark's own commands take it
    assert run("stream", topic.name, "--to", table, "--trigger", NOW)["rows"] == 10
    assert run("export", table, f"{topic.name}-out")["rows"] == 30
    assert values_in(tmp_path / "table") == topic.values()


def test_a_server_that_is_not_there_is_said_at_once() -> None:
    nobody = remote_session("sc://127.0.0.1:9/;token=secret")
    with pytest.raises(SparkSourceError, match=r"answers at sc://127.0.0.1:9: .* start one there"), nobody:
        pass
    with pytest.raises(SparkSourceError, match="named sc://host:port"), remote_session("sc://"):
        pass
