"""The connections to other brokers over real sockets."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from oncelog.node.kernel.events import BrokerConnected, BrokerDisconnected, ConnectToBroker, DisconnectFromBroker, Event
from oncelog.runtime.effects.broker_sockets import BrokerConnection, BrokerSockets


@pytest.mark.parametrize("end", ["close", "abort", "disconnect"])
def test_a_connection_that_is_ended_here_ends_there_and_nobody_is_told_of_it(end: str) -> None:
    async def scenario() -> list[Event]:
        events: list[Event] = []
        connected, closed = asyncio.Event(), asyncio.Event()

        async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                await reader.read()
            closed.set()
            writer.close()

        def dispatch(event: Event) -> None:
            events.append(event)
            connected.set()

        async with await asyncio.start_server(other, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            sockets = BrokerSockets(asyncio.get_running_loop(), dispatch)
            sockets.connect(ConnectToBroker(7, "127.0.0.1", port))
            await connected.wait()
            if end == "disconnect":
                sockets.disconnect(DisconnectFromBroker(7))
            else:
                getattr(sockets, end)()
            await closed.wait()
        return events

    assert asyncio.run(scenario()) == [BrokerConnected(7)]


def test_a_broker_that_is_not_there_refuses() -> None:
    async def scenario() -> Event:
        told: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
        BrokerSockets(asyncio.get_running_loop(), told.set_result).connect(ConnectToBroker(7, "127.0.0.1", port))
        return await told

    assert asyncio.run(scenario()) == BrokerDisconnected(7, refused=True)


def test_the_end_of_a_connection_is_told_with_its_last_bytes_and_once() -> None:
    async def scenario() -> tuple[list[Event], list[Event]]:
        events: list[Event] = []
        connected, ended = asyncio.Event(), asyncio.Event()
        sockets = BrokerSockets(asyncio.get_running_loop(), events.append)
        at_end: list[Event] = []

        class Observed(BrokerConnection):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                connected.set()

            def eof_received(self) -> bool:
                goes_on = super().eof_received()
                at_end.extend(events)
                return goes_on

            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                ended.set()

        sockets._protocol = lambda link_id: Observed(sockets, link_id, memoryview(bytearray(10)))  # type: ignore[method-assign]

        async def other(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await connected.wait()
            writer.close()

        async with await asyncio.start_server(other, "127.0.0.1", 0) as server:
            sockets.connect(ConnectToBroker(7, "127.0.0.1", server.sockets[0].getsockname()[1]))
            await ended.wait()
        return at_end, events

    expected: list[Event] = [BrokerConnected(7), BrokerDisconnected(7)]
    assert asyncio.run(scenario()) == (expected, expected)
