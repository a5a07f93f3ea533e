"""The end of a console that serves something: open streams are told, nothing is printed, the code is that of an end."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.testing.broker import Broker
from tests.interop.admin.lab import at
from tests.peers.process import free_ports
from tests.peers.reaper import watch
from tests.waiting import HANG_S, wait_until

pytestmark = pytest.mark.slow


def console_of(broker: Broker, log: Path) -> AbstractContextManager[tuple[subprocess.Popen[bytes], int]]:
    """The console of a broker."""
    return console_at(broker.bootstrap_servers, log)


@contextmanager
def console_at(bootstrap: str, log: Path, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A console as a process, and its port."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "oncelog", "console", "--bootstrap-servers", bootstrap]
    command += ["--listen", f"127.0.0.1:{port}", *options]
    with (
        log.open("wb") as file,
        subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True) as process,
    ):
        watch(process.pid)
        try:
            wait_until(lambda: _listens(port), log.read_text)
            yield process, port
        finally:
            process.kill()


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def asked(port: int, path: str, *, receive_bytes: int | None = None) -> socket.socket:
    """A browser that has asked for a page, and has read nothing of it."""
    one = socket.socket()
    if receive_bytes is not None:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    one.settimeout(HANG_S)
    one.connect(("127.0.0.1", port))
    one.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    return one


def read_until(item: socket.socket, expected: bytes) -> bytes:
    """Everything up to some bytes, or to the end."""
    data = b""
    while expected not in data and (piece := item.recv(65536)):
        data += piece
    return data


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_open_tail_is_told_and_nothing_is_printed(broker: Broker, tmp_path: Path, number: signal.Signals) -> None:
    with Client(broker.bootstrap_servers) as client:
        create_topic(client, NewTopic(f"ends-{number}", partitions=1, replication_factor=1))
    with console_of(broker, tmp_path / "log") as (console, port):
        with asked(port, f"/messages/tail-events?topic=ends-{number}") as tail:
            assert b"waiting for records" in read_until(tail, b"waiting for records")
            console.send_signal(number)
            told = read_until(tail, b"never")
        assert b"event: state" in told
        assert b"the console is shutting down" in told
        assert b"event: done" not in told, "or the page would not ask again when the console is back"
        assert told.endswith(b"0\r\n\r\n"), "the answer is whole"
        assert console.wait(HANG_S) == 0
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert line.startswith("console of ")


def test_a_download_that_nobody_reads_is_cut_off_without_a_word(broker: Broker, tmp_path: Path) -> None:
    with Client(broker.bootstrap_servers) as client:
        create_topic(client, NewTopic("ends-large", partitions=1, replication_factor=1))
        for _ in range(24):
            client.produce(at("ends-large"), build_batch([Record(0, 0, None, b"v" * 900_000, ())]))
    with (
        console_of(broker, tmp_path / "log") as (console, port),
        asked(port, "/messages/download?topic=ends-large", receive_bytes=4096) as download,
    ):
        assert read_until(download, b"vvvv").startswith(b"HTTP/1.1 200")
        console.send_signal(signal.SIGTERM)
        assert console.wait(HANG_S) == 0
    assert len((tmp_path / "log").read_text().splitlines()) == 1


def test_an_address_that_is_taken_is_one_line_that_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "{}:{}".format(*taken.getsockname())
        ran = subprocess.run(
            [sys.executable, "-m", "oncelog", "console", "--bootstrap-servers", "127.0.0.1:1", "--listen", address],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG_S,
        )
    assert ran.stderr == (
        f"oncelog: cannot listen on {address}: address already in use; choose another address with --listen\n"
    )
    assert (ran.returncode, ran.stdout) == (1, "")


@pytest.mark.parametrize("path", ["/overview", "/messages/tail-events?topic=t"])
def test_a_cluster_that_hangs_does_not_hold_up_the_end(tmp_path: Path, path: str) -> None:
    """Time-outs are ten minutes here: what waits for one is not over in the time of a test."""
    waiting = ("default.api.timeout.ms", "request.timeout.ms", "bootstrap.timeout.ms")
    config = tmp_path / "config"
    config.write_text("".join(f"{text}=600000\n" for text in (*waiting, "socket.connection.setup.timeout.ms")))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(HANG_S)
        address = "{}:{}".format(*silent.getsockname())
        options = ("--command-config", str(config), "--sample-every", "0")
        with console_at(address, tmp_path / "log", *options) as (console, port), asked(port, path):
            connected, _ = silent.accept()
            with connected:
                connected.settimeout(HANG_S)
                assert connected.recv(1), "it has asked, and waits"
                console.send_signal(signal.SIGINT)
                assert console.wait(HANG_S) == 0
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert line.startswith("console of ")
