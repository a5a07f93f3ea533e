"""``oncelog cluster up`` as a process: its brokers come up with it, and none is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.base.notation.java_properties import parse_properties
from oncelog.cli.cluster.configuration import TREE_FILE, defaults, properties_text
from oncelog.cli.main import invoke
from oncelog.runtime.data import data_directory
from tests.interop.cli.conftest import Run
from tests.waiting import HANG_S, wait_until

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a cluster in ``tmp_path / "cluster"`` on free ports."""
    started: list[subprocess.Popen[str]] = []

    def up(brokers: int, *options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "oncelog", "cluster", "up", "--json", "-n", str(brokers)]
        command += ["--data-dir", str(tmp_path / "cluster"), "--base-port", "0", *options]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield up
    for process in started:
        process.kill()
        process.communicate()


def when_up(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline() or process.communicate()[1])


def is_alive(pid: int) -> bool:
    """True while the process runs; one that has ended and waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.slow
def test_a_cluster_serves_and_stops_cleanly(start: Start, run_at: Callable[[str], Run], tmp_path: Path) -> None:
    process = start(1, "--set", "num.partitions=3")
    result = when_up(process)
    run = run_at(result["bootstrap_servers"])
    assert run("topic", "create", "t").out == "topic t created: 3 partitions, replication factor 1\n"
    assert run("cluster", "status").code == 0
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG_S) == 0
    assert [is_alive(row["pid"]) for row in result["brokers"]] == [False]
    assert Path(result["brokers"][0]["log"]).read_text("utf-8").endswith("oncelog stopped cleanly\n")

    again = when_up(start(1))
    assert json.loads(run_at(again["bootstrap_servers"])("topic", "list", "--json").out)[0]["name"] == "t"


@pytest.mark.slow
def test_no_broker_outlives_a_cluster_that_was_killed(start: Start) -> None:
    process = start(1)
    result = when_up(process)
    process.kill()
    process.wait(HANG_S)
    wait_until(lambda: not any(is_alive(row["pid"]) for row in result["brokers"]), "the end of the brokers")


@pytest.mark.slow
def test_a_broker_that_dies_is_told_of_and_not_started_again(start: Start) -> None:
    process = start(1)
    result = when_up(process)
    os.kill(result["brokers"][0]["pid"], signal.SIGKILL)
    _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 1
    assert "oncelog: broker 1 ended (signal 9); the last line in " in err
    assert err.endswith("oncelog: no broker is left\n")


@pytest.mark.slow
def test_a_broker_that_cannot_start_ends_the_cluster(start: Start) -> None:
    out, err = start(1, "--set", "num.partitions=none").communicate(timeout=HANG_S)
    assert out == ""
    assert "oncelog: broker 1 ended (exit code 1); the last line in " in err
    assert "num.partitions" in err


@pytest.mark.parametrize(
    "options",
    [
        ["--set", "node.id=7"],
        ["--set", "listeners=PLAINTEXT://:1"],
        ["--set", "nonsense"],
        ["--set", "num.partitions=1\nnode.id=7"],
        ["--brokers", "0"],
        ["--base-port", "65535"],
    ],
)
def test_what_is_not_the_users_to_set(options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["cluster", "up", "--data-dir", str(tmp_path / "cluster"), *options]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "cluster").exists()


def test_the_data_of_a_broker_that_was_alone_need_its_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / TREE_FILE).touch()
    assert TREE_FILE == data_directory.TREE_FILE
    assert invoke(["cluster", "up", "--data-dir", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert f"oncelog cluster adopt --data-dir {tmp_path} {tmp_path}/1" in told
    assert os.listdir(tmp_path) == ["1"]


def test_three_brokers_survive_the_loss_of_one() -> None:
    assert defaults(1) == {"default.replication.factor": "1"}
    assert defaults(2) == {"default.replication.factor": "2"}
    assert defaults(5) == {"default.replication.factor": "3", "min.insync.replicas": "2"}


def test_properties_are_read_as_they_were_written() -> None:
    values = {"a": "b", "path": "C:\\logs\\x y", "odd key:=": "# = :", "empty": "", "at end": "\\"}
    assert parse_properties(properties_text(values)) == values


@pytest.mark.slow
def test_three_brokers_go_on_without_one_and_take_it_back(start: Start, run_at: Callable[[str], Run]) -> None:
    process = start(3)
    result = when_up(process)
    run = run_at(result["bootstrap_servers"])
    assert run("topic", "create", "t", "-p", "3").out == "topic t created: 3 partitions, replication factor 3\n"
    assert run("produce", "t", stdin=b"a\nb\nc\n").code == 0
    os.kill(result["brokers"][1]["pid"], signal.SIGKILL)
    wait_until(lambda: run("cluster", "status").code == 1, "the death to be known")
    assert run("produce", "t", stdin=b"d\ne\nf\n").code == 0
    properties = Path(result["brokers"][1]["data_dir"]).with_name("broker-2.properties")
    again = subprocess.Popen(
        [sys.executable, "-m", "oncelog", "serve", "--config", str(properties)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: run("cluster", "status").code == 0, "all three in sync")
        assert sorted(run("consume", "t", "-e").out.split()) == ["a", "b", "c", "d", "e", "f"]
    finally:
        again.kill()
        again.wait()
    process.send_signal(signal.SIGINT)
    assert process.wait(HANG_S) == 0
    assert not any(is_alive(row["pid"]) for row in result["brokers"])


@pytest.mark.slow
def test_one_broker_becomes_three(start: Start, run_at: Callable[[str], Run]) -> None:
    process = start(1)
    run = run_at(when_up(process)["bootstrap_servers"])
    assert run("topic", "create", "t", "-p", "2").code == 0
    assert run("produce", "t", stdin=b"a\nb\nc\n").code == 0
    process.send_signal(signal.SIGINT)
    assert process.wait(HANG_S) == 0

    run = run_at(when_up(start(3))["bootstrap_servers"])
    assert run("topic", "reassign", "-t", "t", "--brokers", "1,2,3", "-r", "3", "--wait").code == 0
    assert run("cluster", "status").code == 0
    (result,) = json.loads(run("topic", "describe", "t", "--json").out)
    assert [sorted(row["isr"]) for row in result["partitions"]] == [[1, 2, 3]] * 2
    assert sorted(run("consume", "t", "-e").out.split()) == ["a", "b", "c"]


@pytest.mark.slow
def test_a_secured_cluster(start: Start, run_at: Callable[[str], Run], tmp_path: Path) -> None:
    """Made by one option: brokers replicate by certificates, clients log in, and secrets are the owner's."""
    secured = tmp_path / "secured"
    result = when_up(start(2, "--security", str(secured)))
    run = run_at(result["bootstrap_servers"])
    config = (
        "--command-config",
        str(secured / "client.properties"),
        "-X",
        f"bootstrap.servers={result['bootstrap_servers']}",
    )
    assert run("topic", "create", "t", *config).out == "topic t created: 1 partition, replication factor 2\n"
    assert run("produce", "t", *config, stdin=b"one\n").code == 0
    assert run("cluster", "status", *config).code == 0
    assert run("topic", "list", "-X", "request.timeout.ms=500", "-X", "default.api.timeout.ms=500").code == 1
    directory = tmp_path / "cluster"
    assert {
        path.stat().st_mode & 0o077 for path in (directory, *directory.glob("*.properties"), *directory.glob("*.db"))
    } == {0}


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (None, "a configuration is only for a cluster in ZooKeeper"),
        ("zookeeper.set.acl=true", "the broker has no identity in ZooKeeper"),
        (
            "zookeeper.ssl.client.enable=true\nzookeeper.ssl.truststore.location=/nowhere.pem",
            "cannot read /nowhere.pem",
        ),
    ],
)
def test_a_broker_is_not_adopted_by_a_zookeeper_that_it_could_not_use(
    config: str | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "server.properties"
    path.write_text(config or "")
    place = [] if config is None else ["--zookeeper", "localhost:1/x"]
    assert invoke(["cluster", "adopt", str(tmp_path), *place, "--config", str(path)]) == 2
    assert says in capsys.readouterr().err
