"""``oncelog serve`` as a process: readiness, signals, the directory's lock, options."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from tests.waiting import HANG_S

pytestmark = pytest.mark.slow


def serve(directory, *options: str, listen: str | None = "127.0.0.1:0") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "oncelog", "serve", "--data-dir", str(directory)]
    place = [] if listen is None else ["--listen", listen]
    return subprocess.Popen([*command, *place, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ready_line(process) -> str:
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_cleanly(tmp_path, number):
    process = serve(tmp_path)
    assert re.search(r"ready on 127\.0\.0\.1:\d+", ready_line(process))
    process.send_signal(number)
    output, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, errors
    assert "stopped cleanly" in output
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_second_broker_on_the_same_directory_is_refused_in_one_line(tmp_path):
    first = serve(tmp_path)
    ready_line(first)
    second = serve(tmp_path)
    _, errors = second.communicate(timeout=HANG_S)
    first.terminate()
    first.communicate(timeout=HANG_S)
    assert second.returncode == 1
    assert "in use by another broker" in errors
    assert len(errors.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("log.retention.ms=soon", "log.retention.ms"),
        ("num.partitions=0", "num.partitions"),
        ("log.sync.policy=maybe", "log.sync.policy"),
        ("novalue", "key=value"),
    ],
)
def test_a_wrong_value_is_refused_with_the_reason(tmp_path, option, reason):
    process = serve(tmp_path, "-o", option)
    _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 1
    assert reason in errors
    assert "Traceback" not in errors


def test_an_unknown_key_is_warned_about(tmp_path):
    process = serve(tmp_path, "-o", "no.such.key=1")
    ready_line(process)
    process.terminate()
    _, errors = process.communicate(timeout=HANG_S)
    assert "no.such.key" in errors


def test_metrics_and_health_over_http(tmp_path):
    process = serve(tmp_path, "--http", "127.0.0.1:0")
    address = re.search(r"http://(\S+)/metrics", ready_line(process)).group(1)
    ready_line(process)
    try:
        with urllib.request.urlopen(f"http://{address}/metrics") as response:
            text = response.read().decode()
        with urllib.request.urlopen(f"http://{address}/health") as response:
            assert response.read() == b"ok\n"
    finally:
        process.terminate()
        process.communicate(timeout=HANG_S)
    assert "oncelog_partitions 0.0" in text
    assert "oncelog_loop_delay_seconds" in text


def test_an_address_that_is_taken_is_one_line_that_says_what_to_do(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        process = serve(tmp_path, listen=address)
        _, message = process.communicate(timeout=HANG_S)
    assert process.returncode == 1
    reason = "address already in use; stop what listens there, or choose another port"
    assert message == f"oncelog: cannot listen on {address}: {reason}\n"
