"""Source, sink, load, stream and export against a broker of ours that wants TLS and a login; no secret is in a plan, a
report or a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from oncelog.cli.main import invoke
from oncelog.client.blocking import Client
from oncelog.security.properties import Setting, properties_text
from oncelog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

USER, PASSWORD = "alice", "hush-hush-1"
TWO_PHASES: Final = {"transaction.two.phase.commit.enable": "true"}


@pytest.fixture(params=["mtls", "oauth"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(TWO_PHASES, security=request.param) as broker:
        broker.add_user(USER, PASSWORD if request.param in ("scram", "plain") else None)
        broker.allow(USER)
        yield broker


def test_source_and_sink(spark: SparkSession, broker: Broker, capfd: pytest.CaptureFixture[str]) -> None:
    options = {f"kafka.{key}": value for key, value in broker.client_config(USER, java=True).items()}
    rows = spark.range(5).selectExpr("cast(id as string) as value")
    rows.write.format("oncelog").options(**options).option("topic", "numbers").mode("append").save()
    read = spark.read.format("oncelog").options(**options).option("subscribe", "numbers").load()
    read.explain("extended")
    assert sorted(int(row.value) for row in read.collect()) == list(range(5))
    printed = "".join(capfd.readouterr())
    assert "== Physical Plan ==" in printed
    assert PASSWORD not in printed


@pytest.mark.parametrize("broker", ["scram"], indirect=True)
def test_load_stream_and_export(
    spark: SparkSession, broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the session that is there."""
    java = broker.client_config(USER, java=True)
    config = tmp_path / "client.properties"
    config.write_text(properties_text("", [Setting(key, value) for key, value in java.items()]))
    table = tmp_path / "table"
    options = {f"kafka.{key}": value for key, value in java.items()}
    spark.range(5).selectExpr("cast(id as string) as value").write.format("oncelog").options(**options).option(
        "topic", "numbers"
    ).mode("append").save()
    shared = ["--command-config", str(config), "--json"]
    assert invoke(["load", "numbers", "--to", str(table), *shared]) == 0, capfd.readouterr()
    assert invoke(["stream", "numbers", "--to", str(table), "--trigger", "available-now", *shared]) == 0
    assert invoke(["export", str(table), "again", *shared]) == 0, capfd.readouterr()
    with Client(java["bootstrap.servers"], config=java) as client:
        assert client.topic("again").partitions
    printed = "".join(capfd.readouterr())
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path != config]
    assert len(files) > 1
    assert not [path for path in files if PASSWORD.encode() in path.read_bytes()]
    assert PASSWORD not in printed
