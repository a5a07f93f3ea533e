"""The compose file: its images, its mounts, and every command in it, run here by processes instead of containers."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from codegen.image import contents

import oncelog
from tests.packages.builds import ROOT
from tests.packages.environments import variables
from tests.packages.tools import CONTAINER_SPECS, PROMTOOL
from tests.peers.process import free_ports
from tests.waiting import HANG_S, wait_until

COMPOSE = contents.FILES / "compose.yaml"
BROKERS = ("broker-1", "broker-2", "broker-3")
ONCELOG = Path(sys.executable).with_name("oncelog")


def services() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(COMPOSE.read_text("utf-8"))["services"]
    return loaded


def test_services_use_this_version_and_files_that_exist() -> None:
    for name, service in services().items():
        if name != "prometheus":
            assert service["image"] == f"oncelog:{oncelog.__version__}"
            assert service["read_only"]
            assert service["cap_drop"] == ["ALL"]
        for volume in service.get("volumes", ()):
            source, target = volume.split(":")[:2]
            assert not source.startswith(".") or (COMPOSE.parent / source).is_file()
            assert name == "prometheus" or target.strip("/") in (contents.DATA, contents.CLUSTER)


def test_ports_are_published_on_loopback_and_are_those_that_brokers_advertise() -> None:
    published = [port for service in services().values() for port in service.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in published)
    for name in BROKERS:
        service = services()[name]
        (host,) = re.findall(r"HOST://localhost:(\d+)", service["environment"]["KAFKA_ADVERTISED_LISTENERS"])
        (inside,) = re.findall(r"HOST://0.0.0.0:(\d+)", service["environment"]["KAFKA_LISTENERS"])
        assert service["ports"][0] == f"127.0.0.1:{host}:{inside}"
        assert service["hostname"] == name


@pytest.mark.peer("container-specs")
@pytest.mark.slow
def test_the_compose_library_accepts_the_file() -> None:
    command = [CONTAINER_SPECS.home() / "container-specs", "compose", COMPOSE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Stack:
    """The services of the compose file as processes, with other ports and directories."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = dict(zip(("9090", "8080"), free_ports(2), strict=True))
        for number, name in enumerate(BROKERS, 1):
            inside, host, metrics = free_ports(3)
            self._ports |= {f"{name}:9092": inside, f"localhost:{19091 + number}": host}
            self._ports |= {f"{name}:9464": metrics, f"localhost:{9463 + number}": metrics}

    def address(self, written: str) -> str:
        """An address as the compose file writes it, here."""
        return f"127.0.0.1:{self._ports[written]}"

    def _here(self, text: str, broker: str) -> str:
        text = text.replace("CLUSTER://0.0.0.0:9092", f"CLUSTER://{broker}:9092")
        text = text.replace("HOST://0.0.0.0:19092", f"HOST://localhost:{19091 + int(broker[-1] or 1)}")
        text = text.replace("0.0.0.0:9464", f"{broker}:9464").replace("127.0.0.1:8080", self.address("8080"))
        for written in sorted(self._ports, key=len, reverse=True):
            text = text.replace(written, self.address(written)) if ":" in written else text
        text = text.replace(f"/{contents.CLUSTER}", str(self.directory / "cluster"))
        text = text.replace(f"/{contents.DATA}", str(self.directory / broker))
        return text.replace(f"/{contents.CONFIGURATION}", str(self.directory / f"{broker}.properties"))

    def start(self, name: str) -> None:
        service = services()[name]
        broker = name if name in BROKERS else BROKERS[0]
        if name in BROKERS:
            (self.directory / "cluster").mkdir(exist_ok=True)
            text = (contents.FILES / "server.properties").read_text("utf-8")
            (self.directory / f"{name}.properties").write_text(self._here(text, name), "utf-8")
        command = [self._here(word, broker) for word in service.get("command", contents.COMMAND)]
        environ = {key: self._here(value, broker) for key, value in service.get("environment", {}).items()}
        log = (self.directory / f"{name}.log").open("wb")
        self.processes[name] = subprocess.Popen(
            [ONCELOG, *command], cwd=self.directory, env={**variables(), **environ}, stdout=log, stderr=log
        )
        log.close()

    def is_healthy(self, name: str) -> bool:
        """The health check of the service, or of the image."""
        assert self.processes[name].poll() is None, (self.directory / f"{name}.log").read_text("utf-8")
        if name in BROKERS:
            url = f"http://{self.address(f'{name}:9464')}/health"
        else:
            url = services()[name]["healthcheck"]["test"][-1].replace("127.0.0.1:8080", self.address("8080"))
        command = [sys.executable, contents.FILES / "healthcheck.py", url]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def stop(self) -> dict[str, int]:
        """The exit codes after SIGTERM, as compose stops services: all at once."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        return {name: process.wait(HANG_S) for name, process in self.processes.items()}


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """The three brokers, healthy."""
    stack = Stack(tmp_path)
    try:
        for name in BROKERS:
            stack.start(name)
        for name in BROKERS:
            wait_until(lambda name=name: stack.is_healthy(name), f"{name} is healthy")
        yield stack
    finally:
        for process in stack.processes.values():
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.integration
def test_brokers_and_console_run_with_the_commands_and_variables_of_the_file(stack: Stack) -> None:
    stack.start("console")
    wait_until(lambda: stack.is_healthy("console"), "the console is healthy")
    servers = ",".join(stack.address(f"localhost:{19092 + number}") for number in range(3))

    def command(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        words = (str(ONCELOG), *words, "--bootstrap-server", servers)
        return subprocess.run(words, input=text, capture_output=True, text=True, env=variables(), check=False)

    def run(*words: str, text: str = "") -> str:
        done = command(*words, text=text)
        assert done.returncode == 0, done.stderr
        return done.stdout

    wait_until(lambda: command("cluster", "status").returncode == 0, lambda: command("cluster", "status").stdout)
    run("topic", "create", "orders")
    (topic,) = json.loads(run("topic", "describe", "orders", "--json"))
    assert [sorted(partition["replicas"]) for partition in topic["partitions"]] == [[1, 2, 3]]
    run("produce", "orders", text="a\nb\n")
    assert run("consume", "orders", "--from", "beginning", "--exit").split() == ["a", "b"]
    with urllib.request.urlopen(f"http://{stack.address('8080')}/") as page:
        assert b"oncelog" in page.read()
    assert stack.stop() == dict.fromkeys((*BROKERS, "console"), 0)
    assert all("stopped cleanly" in (stack.directory / f"{name}.log").read_text("utf-8") for name in BROKERS)


@pytest.mark.slow
@pytest.mark.peer("promtool")
def test_prometheus_scrapes_the_brokers_and_loads_the_rules(stack: Stack) -> None:
    text = (contents.FILES / "prometheus.yml").read_text("utf-8")
    for name in BROKERS:
        text = text.replace(f"{name}:9464", stack.address(f"{name}:9464"))
    (stack.directory / "prometheus.yml").write_text(
        text.replace("scrape_interval: 30s", "scrape_interval: 1s"), "utf-8"
    )
    rules = (ROOT / "packaging" / "prometheus" / "oncelog.rules.yml").read_bytes()
    (stack.directory / "oncelog.rules.yml").write_bytes(rules)
    words = [
        word.replace("/etc/prometheus", str(stack.directory)).replace("=/prometheus", f"={stack.directory}/prometheus")
        for word in services()["prometheus"]["command"]
    ]
    program = PROMTOOL.home() / "usr" / "bin" / "prometheus"
    command = [program, *words, f"--web.listen-address={stack.address('9090')}"]
    with (stack.directory / "prometheus.log").open("wb") as log:
        stack.processes["prometheus"] = subprocess.Popen(command, cwd=stack.directory, stdout=log, stderr=log)

    def ask(path: str) -> Any:
        try:
            with urllib.request.urlopen(f"http://{stack.address('9090')}/api/v1/{path}") as answer:
                return json.load(answer)["data"]
        except OSError:
            assert stack.processes["prometheus"].poll() is None, (stack.directory / "prometheus.log").read_text()
            return {}

    def healths() -> list[str]:
        return [target["health"] for target in ask("targets").get("activeTargets", ())]

    wait_until(lambda: healths() == ["up"] * 3, lambda: str(ask("targets")), 0.2)
    (group,) = ask("rules")["groups"]
    assert {rule["name"] for rule in group["rules"]} >= {"OncelogBrokerDown", "OncelogHangingTransaction"}
    assert stack.stop() == {**dict.fromkeys(BROKERS, 0), "prometheus": 0}
