"""Notifications to systemd: what is sent, where to, and that the manager cannot hold the process up."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.runtime import service_manager
from oncelog.runtime.service_manager import (
    UnusableSockets,
    handed_sockets,
    keep_watchdog_fed,
    notify_ready,
    notify_stopping,
    watchdog_timeout_s,
)

_UNUSED = 700
"""A descriptor far above those in use."""


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The manager's socket, named in the environment."""
    name = str(tmp_path / "n") if request.param == "path" else f"@oncelog-test-{tmp_path.name}-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(name.replace("@", "\0", 1) if name.startswith("@") else name)
        receiver.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        yield receiver


def test_readiness_and_the_stop_are_reported(manager: socket.socket) -> None:
    notify_ready("broker 1 on 127.0.0.1:9092")
    notify_stopping()
    assert manager.recv(1000) == b"READY=1\nSTATUS=broker 1 on 127.0.0.1:9092"
    assert manager.recv(1000) == b"STOPPING=1\nSTATUS=stopping"


def test_a_status_cannot_begin_another_assignment(manager: socket.socket) -> None:
    notify_ready("cluster x\nMAINPID=1")
    assert manager.recv(1000) == b"READY=1\nSTATUS=cluster x MAINPID=1"


def test_a_manager_that_does_not_read_holds_nothing_up(manager: socket.socket) -> None:
    for _ in range(2000):
        notify_stopping()
    assert manager.recv(1000).startswith(b"STOPPING=1")


@pytest.mark.parametrize("address", [None, "", "vsock:2:1234", "/nowhere/at/all"])
def test_without_a_manager_nothing_happens(address: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if address is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify_ready("broker")


@pytest.mark.parametrize(
    ("environ", "timeout_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdogs_time_out(environ: dict[str, str], timeout_s: float | None) -> None:
    assert watchdog_timeout_s(environ, 7) == timeout_s


def test_the_loop_sends_signs_of_life_until_it_stops(manager: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)

    async def three_signs() -> list[bytes]:
        loop = asyncio.get_running_loop()
        keep_watchdog_fed(loop)
        return [await loop.sock_recv(manager, 100) for _ in range(3)]

    assert asyncio.run(three_signs()) == [b"WATCHDOG=1"] * 3


def test_the_sockets_of_a_socket_unit_are_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        monkeypatch.setattr(service_manager, "_FIRST_DESCRIPTOR", server.detach())
        (handed,) = handed_sockets({"LISTEN_PID": "7", "LISTEN_FDS": "1"}, 7)
        with handed:
            assert handed.getsockname() == address
            assert not handed.getblocking()
            assert not handed.get_inheritable()


@pytest.mark.parametrize(
    "environ",
    [{}, {"LISTEN_FDS": "1"}, {"LISTEN_PID": "8", "LISTEN_FDS": "1"}, {"LISTEN_PID": "7", "LISTEN_FDS": "-1"}],
)
def test_without_a_socket_unit_there_are_no_sockets(environ: dict[str, str]) -> None:
    assert handed_sockets(environ, 7) == []


@pytest.mark.parametrize("count", ["17", "9" * 5000])
def test_more_sockets_than_any_unit_has_are_refused(count: str) -> None:
    with pytest.raises(UnusableSockets, match="more than 16 sockets"):
        handed_sockets({"LISTEN_PID": "7", "LISTEN_FDS": count}, 7)


@pytest.mark.parametrize("is_open", [True, False])
def test_descriptors_that_are_no_sockets_are_refused_and_those_before_them_closed(
    monkeypatch: pytest.MonkeyPatch, is_open: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, open(os.devnull) as no_socket:
        first = os.dup2(server.fileno(), _UNUSED)
        if is_open:
            os.dup2(no_socket.fileno(), first + 1)
    monkeypatch.setattr(service_manager, "_FIRST_DESCRIPTOR", first)
    with pytest.raises(UnusableSockets, match=rf"^descriptor {first + 1} of the socket unit is no socket: "):
        handed_sockets({"LISTEN_PID": "7", "LISTEN_FDS": "2"}, 7)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(first)
    if is_open:
        os.close(first + 1)
