"""Loads and streams into Delta and Iceberg through a server of Spark Connect: in directories, on S3, in a catalog."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncelog.spark import load, register
from oncelog.spark.session import sessions
from oncelog.spark.session.errors import ServerLacksOncelog, SparkSourceError
from oncelog.spark.session.local_session import REMOTE_VARIABLE
from tests.spark.conftest import Topic
from tests.spark.jobs.test_table_streams import Lakes, check_continued, check_killed
from tests.spark.jobs.test_targets import check, rows_in
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # pyiceberg leaves catalogs' connections to the collector
]

MakeTopic = Callable[..., Topic]
KINDS = ("delta", "iceberg")


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_has_each_record_once_and_no_setting_is_left_behind(
    kind: str, connect: SparkSession, topic_with: MakeTopic, tmp_path: Path
) -> None:
    connect.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")  # days of a partitioned table are UTC's all the same
    register(connect)  # hides passwords for as long as the session lives
    before = connect.conf.getAll
    check(kind, connect, topic_with(0), tmp_path / "table")
    assert connect.conf.getAll == before


@pytest.mark.long
def test_a_stream_a_backfill_and_a_replacement_into_delta_on_s3(
    connect: SparkSession, topic_with: MakeTopic, lake: Lakes
) -> None:
    check_continued(connect, topic_with(0, 1), lake("delta"))


def test_a_stream_into_iceberg_in_a_catalog_is_killed_and_goes_on(
    server: str, connect: SparkSession, topic_with: MakeTopic, lake: Lakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REMOTE_VARIABLE, server)  # for the process that dies
    check_killed(connect, topic_with(0, 2), lake("iceberg-rest"), "committed")


def test_the_commands_write_into_a_delta_table(server: str, topic_with: MakeTopic, tmp_path: Path) -> None:
    topic, place = topic_with(20), tmp_path / "table"
    shared = ["--to", f"delta:{place}", "--remote", server, "--bootstrap-servers", topic.bootstrap_servers, "--json"]

    def run(*arguments: str) -> object:
        command = [sys.executable, "-m", "oncelog", *arguments, *shared]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)["rows"]

    assert run("load", topic.name) == 20
    topic.produce(10)
    assert run("stream", topic.name, "--trigger", "available-now") == 10
    assert sorted(rows_in("delta", place)["value"].to_pylist()) == topic.values()


@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_that_the_server_does_not_see_is_refused(
    kind: str, connect: SparkSession, topic_with: MakeTopic, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def elsewhere(session: sessions.JobSession, directory: Path) -> None:
        raise SparkSourceError(f"the Spark server does not see {directory}")

    monkeypatch.setattr(sessions, "check_shared", elsewhere)
    topic = topic_with(4)
    with pytest.raises(SparkSourceError, match=f"does not see {tmp_path}"):
        load(topic.name, topic.bootstrap_servers, f"{kind}:{tmp_path}", spark=connect)
    assert not [*tmp_path.rglob("*.parquet")]


def test_a_server_without_the_formats_package_is_told_what_to_install(
    connect: SparkSession, without_deltalake: None, topic_with: MakeTopic, lake: Lakes
) -> None:
    topic, place = topic_with(4), lake("delta")
    with pytest.raises(ServerLacksOncelog, match="no Python module 'deltalake'"):
        load(topic.name, topic.bootstrap_servers, place.to, spark=connect, storage_options=place.options)
    assert place.rows() == []
