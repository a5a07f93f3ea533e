"""Connections are taken as long as descriptors are left for other things, and taken again when there are some."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from oncelog.listening import acceptor as acceptors
from oncelog.listening.acceptor import SPARE, Acceptor
from oncelog.listening.addresses import bind
from oncelog.runtime.process import new_event_loop
from tests.certificates import Authority

T = TypeVar("T")


@pytest.fixture(autouse=True)
def _no_data_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of the process may have data files open, which would give way."""
    monkeypatch.setattr(acceptors, "give_way", lambda: False)


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """Run a scenario on the loop that servers have."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(scenario)


ANY = 1 << 30


class Greeting(asyncio.Protocol):
    """Says one word to each client."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast("asyncio.Transport", transport)  # uvloop's is one without saying so
        made.write(b"hello")
        made.close()


def accepting(**options: Any) -> tuple[Acceptor, int]:
    """An acceptor on loopback, and its port."""
    made = Acceptor("test", bind("127.0.0.1", 0), Greeting, **{"bound": lambda: ANY, **options})
    made.listen(64)
    made.start()
    return made, made.sockets[0].getsockname()[1]


async def greeted(port: int) -> bool:
    """True if a client is greeted, False if its connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await reader.read() == b"hello"
    except ConnectionError:
        return False
    finally:
        writer.close()


def test_a_connection_whose_descriptor_others_need_is_closed_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    bound = 0
    refused: list[None] = []

    async def scenario() -> None:
        nonlocal bound
        made, port = accepting(bound=lambda: bound, on_refused=lambda: refused.append(None))
        assert [await greeted(port) for _ in range(3)] == [False] * 3
        assert len(refused) == 3
        bound = ANY
        assert await greeted(port)
        made.close()
        made.close()

    with caplog.at_level(logging.WARNING, "oncelog.listening"):
        run(scenario())
    (line,) = caplog.messages
    assert "a connection is refused" in line
    assert "ulimit -n" in line


@pytest.mark.parametrize("turns", range(6))
def test_a_connection_closed_with_its_acceptor_is_told_that_it_is_lost(turns: int) -> None:
    events: list[str] = []

    class Watching(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            events.append("made")

        def connection_lost(self, exc: Exception | None) -> None:
            events.append("lost")

    async def scenario() -> None:
        made = Acceptor("test", bind("127.0.0.1", 0), Watching, bound=lambda: ANY)
        made.listen(64)
        with socket.create_connection(made.sockets[0].getsockname()) as client:
            client.setblocking(False)
            made.start()
            for _ in range(turns):
                await asyncio.sleep(0)
            made.close()
            for _ in range(10):
                await asyncio.sleep(0)
            assert events != ["made"] or not has_ended(client)

    def has_ended(client: socket.socket) -> bool:
        try:
            return client.recv(1) == b""
        except BlockingIOError:
            return False

    run(scenario())


def test_the_last_descriptors_before_the_bound_are_given_while_others_are_made_free() -> None:
    requests: list[None] = []

    async def scenario() -> None:
        with socket.socket() as probe:
            lowest_free = probe.fileno()
        # The client's sockets take numbers, too.
        made, port = accepting(bound=lambda: lowest_free + SPARE, make_room=lambda: requests.append(None))
        assert await greeted(port)
        assert len(requests) == 1
        made.close()

    run(scenario())


def test_a_connection_is_taken_where_data_files_close_theirs_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    open_files = [1]

    def give_way() -> bool:
        return bool(open_files and open_files.pop())

    monkeypatch.setattr(acceptors, "give_way", give_way)
    requests: list[None] = []

    async def scenario() -> None:
        made, port = accepting(bound=lambda: 0, make_room=lambda: requests.append(None))
        assert await greeted(port)
        assert not requests, "no connection is closed for it"
        assert not await greeted(port)
        assert len(requests) == 1
        made.close()

    run(scenario())


class Failing(socket.socket):
    """Fails to accept for a reason, as often as it is told to."""

    reasons: list[int]

    def accept(self) -> tuple[socket.socket, Any]:
        if self.reasons:
            raise OSError(self.reasons.pop(0), "no")
        return super().accept()


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        (errno.EMFILE, "there are no file descriptors left"),
        (errno.ENFILE, "there are no file descriptors left"),
        (errno.ENOBUFS, "accepting fails"),
        (errno.ECONNABORTED, None),
    ],
)
def test_accepting_goes_on_after_a_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, reason: int, line: str | None
) -> None:
    monkeypatch.setattr(acceptors, "PAUSE_S", 0.001)

    async def scenario() -> None:
        (bound,) = bind("127.0.0.1", 0)
        listening = Failing(fileno=bound.detach())
        listening.reasons = [reason, reason]
        made = Acceptor("test", [listening], Greeting, bound=lambda: ANY)
        made.listen(8)
        made.start()
        assert await greeted(listening.getsockname()[1])
        assert listening.reasons == []
        made.close()

    with caplog.at_level(logging.WARNING, "oncelog.listening"):
        run(scenario())
    assert [line in message for message in caplog.messages if line] == ([] if line is None else [True])


def test_those_that_come_too_quickly_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> list[float]:
        pauses: list[float] = []
        loop = asyncio.get_running_loop()
        later: Callable[..., asyncio.TimerHandle] = loop.call_later

        def at_once(delay_s: float, callback: Any, *arguments: Any) -> asyncio.TimerHandle:
            pauses.append(delay_s)
            made._due_s -= delay_s
            return later(0, callback, *arguments)

        made, port = accepting(most_a_second=2)
        monkeypatch.setattr(loop, "call_later", at_once)
        assert all([await greeted(port) for _ in range(6)])
        made.close()
        return pauses

    pauses = run(scenario())
    assert len(pauses) >= 2
    assert all(0 < pause <= 0.5 for pause in pauses)


def test_handshakes_that_stand_still_make_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(acceptors, "MOST_ENTERING", 2)
    authority = Authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.broker().write(tmp_path))

    async def scenario() -> None:
        made, port = accepting(tls=context)
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        reader, writer = await asyncio.open_connection(
            "localhost", port, ssl=authority.context(), family=socket.AF_INET
        )
        assert await reader.read() == b"hello"
        writer.close()
        assert await silent[0][0].read() == b""
        for _, one in silent:
            one.close()
        made.close()

    run(scenario())
