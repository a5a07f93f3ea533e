"""The units of systemd: their command lines, their hardening, and what `oncelog serve` tells the manager."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from oncelog.runtime.process import SHUTDOWN_S
from tests.packages.builds import ROOT
from tests.peers.process import free_ports
from tests.shell import parsed
from tests.waiting import HANG_S, wait_until

UNITS = ROOT / "packaging" / "systemd"
NAMES = ("oncelog.service", "oncelog-console.service")
MOST_EXPOSED = 2.5


def read_service(name: str) -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((UNITS / name).read_text("utf-8"))
    return parser["Service"]


@pytest.mark.parametrize("name", NAMES)
def test_the_command_line_of_a_unit_is_valid(name: str) -> None:
    command = read_service(name)["ExecStart"]
    assert command.startswith("/opt/oncelog/bin/oncelog ")
    parsed(command.removeprefix("/opt/oncelog/bin/"))


def test_the_manager_waits_longer_than_the_broker_takes_to_stop() -> None:
    service = read_service("oncelog.service")
    assert service["Type"] == "notify"
    assert service["StateDirectory"] == "oncelog"
    assert float(service["TimeoutStopSec"]) > SHUTDOWN_S


def test_the_socket_of_the_console_is_at_its_address() -> None:
    lines = (UNITS / "oncelog-console.socket").read_text("utf-8").splitlines()
    (address,) = (line.removeprefix("ListenStream=") for line in lines if line.startswith("ListenStream="))
    assert f"--listen {address} " in read_service("oncelog-console.service")["ExecStart"]


@pytest.mark.packages
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="systemd-socket-activate is not installed")
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_the_console_takes_the_socket_at_its_address_alone(host: str) -> None:
    (port,) = free_ports(1)
    console = [sys.executable, "-m", "oncelog", "console", "--listen", f"127.0.0.1:{port}"]
    activate = ["systemd-socket-activate", "-l", f"{host}:{port}", *console, "--bootstrap-servers", "127.0.0.1:1"]
    process = subprocess.Popen(activate, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: _is_answered(f"http://{host}:{port}/static/vendor/htmx.min.js", process), "an answer")
        if host == "127.0.0.1":
            process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=HANG_S)
        assert ("the socket unit listens on" in errors) == (process.returncode != 0) == (host != "127.0.0.1"), errors
    finally:
        process.kill()
        process.communicate()


def _is_answered(url: str, process: subprocess.Popen[str]) -> bool:
    """True once the console has answered, or has ended."""
    try:
        with urllib.request.urlopen(url, timeout=HANG_S) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return process.poll() is not None


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("name", NAMES)
def test_a_unit_is_hardened(name: str) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNITS / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
    match = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert match, done.stdout
    assert float(match[1]) <= MOST_EXPOSED


@pytest.mark.slow
def test_serve_tells_the_manager_when_it_is_ready_alive_and_stopping(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(HANG_S)
        environ = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000"}
        command = [
            sys.executable,
            "-m",
            "oncelog",
            "serve",
            "--data-dir",
            str(tmp_path / "d"),
            "--listen",
            "127.0.0.1:0",
        ]
        broker = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)
        try:
            ready = re.fullmatch(
                r"READY=1\nSTATUS=broker \d+ of cluster \S+ on 127\.0\.0\.1:(\d+)", manager.recv(1000).decode()
            )
            assert ready
            assert manager.recv(1000) == b"WATCHDOG=1"
            socket.create_connection(("127.0.0.1", int(ready[1]))).close()
            broker.send_signal(signal.SIGTERM)
            while (message := manager.recv(1000)) == b"WATCHDOG=1":
                pass
            assert message.startswith(b"STOPPING=1\n")
            assert broker.wait(HANG_S) == 0
        finally:
            broker.kill()
            broker.wait()
