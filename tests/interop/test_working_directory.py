"""No process that we start imports a module from the directory it is started in (spark: tests/spark)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.base.python_process import python_module
from oncelog.cli.cluster.processes import BrokerPlan, BrokerProcesses, Ended, Ready
from oncelog.console.audits.runs import AuditRun, process_of
from oncelog.console.formats.decoder_process import MESSAGEPACK, DecodingProcess
from tests.hostile_directory import modules_run, plant
from tests.waiting import HANG_S

pytestmark = pytest.mark.slow


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "hostile"
    directory.mkdir()
    plant(directory)
    monkeypatch.chdir(directory)
    return directory


def test_the_directory_is_hostile_to_python_with_its_own_path(hostile: Path) -> None:
    plain = subprocess.run([sys.executable, "-m", "oncelog", "--version"], capture_output=True, check=False)
    assert plain.returncode != 0
    assert modules_run(hostile)


def test_the_decoding_process(hostile: Path) -> None:
    decoding = DecodingProcess()
    text = decoding.text(MESSAGEPACK, b"\x93\x01\x02\x03", b"", {"framed": False, "most": 100, "indent": None}, HANG_S)
    decoding.close()
    assert (text.error, modules_run(hostile)) == (None, [])


def test_an_audit_of_the_console(hostile: Path) -> None:
    command = process_of(["oncelog", "audit", "--help"])
    run = AuditRun("k", [], command, hostile / "report", "user")
    assert run.wait(HANG_S)
    assert (run.state, modules_run(hostile)) == ("done", [])


def test_a_broker_of_cluster_up(hostile: Path, tmp_path: Path) -> None:
    properties = tmp_path / "broker.properties"
    properties.write_text("listeners=PLAINTEXT://127.0.0.1:0\n", encoding="utf-8")
    plan = BrokerPlan(1, properties, tmp_path / "broker.log", tmp_path / "data")
    with BrokerProcesses() as processes:
        processes.start(plan)
        event = processes.next_event()
        assert isinstance(event, Ready), (event, plan.log.read_text("utf-8"))
        processes.stop()
        assert isinstance(processes.next_event(), Ended)
    assert modules_run(hostile) == []


def test_a_module_started_by_a_module(hostile: Path) -> None:
    script = (
        "import subprocess; from oncelog.base.python_process import python_module;"
        "subprocess.run(python_module('oncelog', '--version'), check=True)"
    )
    subprocess.run([*python_module("x")[:2], "-c", script], check=True, capture_output=True)
    assert modules_run(hostile) == []
