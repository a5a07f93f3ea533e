"""Spark's Python processes import nothing from the directory in which a command is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.client.blocking.client import Client
from oncelog.client.blocking.producer import Producer
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.testing import Broker
from tests.hostile_directory import modules_run, plant
from tests.waiting import HANG_S


@pytest.mark.integration
def test_an_audit(tmp_path: Path) -> None:
    hostile, partition = tmp_path / "hostile", tmp_path / "data" / "t-0"
    hostile.mkdir()
    partition.mkdir(parents=True)
    plant(hostile)
    (partition / "00000000000000000000.log").write_bytes(build_batch([Record(-1, 1000, None, b"v")], base_offset=0))
    program = str(Path(sys.executable).with_name("oncelog"))
    command = [program, "audit", "--spark", str(tmp_path / "data"), "--json"]
    done = subprocess.run(command, cwd=hostile, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (done.returncode, modules_run(hostile)) == (0, []), done.stderr


@pytest.mark.integration
@pytest.mark.spark_versions(">=4.2")
def test_a_load(tmp_path: Path, sink_broker: Broker) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    plant(hostile)
    with Client(sink_broker.bootstrap_servers) as client, Producer(client, create_topics=True) as producer:
        producer.send("loaded-beside-hostile-modules", b"v")
    program = str(Path(sys.executable).with_name("oncelog"))
    options = ["--to", str(tmp_path / "table"), "--bootstrap-server", sink_broker.bootstrap_servers, "--json"]
    command = [program, "load", "loaded-beside-hostile-modules", *options]
    done = subprocess.run(command, cwd=hostile, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (done.returncode, modules_run(hostile)) == (0, []), done.stderr
