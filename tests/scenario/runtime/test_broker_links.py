"""Two brokers on one event loop, over real sockets: questions, large answers, and ends of all kinds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from oncelog.base.ids import BrokerId
from oncelog.node.brokers.broker_links import LinkPurpose
from oncelog.node.kernel.events import Continued
from oncelog.node.listeners.broker_settings import read_settings
from oncelog.runtime.server import Server
from oncelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.waiting import HANG_S, POLL_S


@asynccontextmanager
async def two_servers(tmp_path: Path) -> AsyncIterator[list[Server]]:
    """Brokers 1 and 2 of one cluster, which know of each other."""
    servers = []
    for broker_id in (1, 2):
        config = {
            "node.id": str(broker_id),
            "oncelog.tree.path": str(tmp_path / "tree.db"),
            "oncelog.broker.freeze.timeout.ms": "0",  # it has connections of its own
        }
        settings = read_settings(config, data_directory=str(tmp_path / str(broker_id)), listen=("127.0.0.1", 0))
        servers.append(Server(settings))
        await servers[-1].start()
    await until(lambda: len(servers[0].node.cluster.image.brokers) == 2)
    try:
        yield servers
    finally:
        for server in servers:
            if server._data_directory is not None:
                await server.abandon()


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop go round until something is so."""
    async with asyncio.timeout(HANG_S):
        while not condition():
            await asyncio.sleep(POLL_S)


async def ask(server: Server, broker_id: int, message: Any, timeout_ms: int | None = None) -> Any:
    """Ask another broker over a link."""
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    runner = server.effect_runner
    server.node.links.request(BrokerId(broker_id), LinkPurpose.CONTROL, message, answered.set_result, timeout_ms)
    runner.dispatch(Continued())
    async with asyncio.timeout(HANG_S):
        return await answered


def test_brokers_ask_each_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with two_servers(tmp_path) as (first, second):
            assert await ask(first, 2, ListTransactionsRequest()) == ListTransactionsResponse()
            answer = cast("MetadataResponse", await ask(second, 1, MetadataRequest(topics=None)))
            assert sorted(broker.node_id for broker in answer.brokers) == [1, 2]
            assert len(first.effect_runner.connections) == len(second.effect_runner.connections) == 1
            for server in (first, second):
                assert await server.stop(HANG_S) is None

    asyncio.run(scenario())


def test_a_stopped_broker_refuses_and_one_that_is_killed_is_noticed(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with two_servers(tmp_path) as (first, second):
            refused: list[BrokerId] = []
            first.node.links.on_refused.append(refused.append)
            assert await ask(first, 2, ListTransactionsRequest()) is not None
            second.halt()
            await until(lambda: not first.effect_runner.brokers._connected)
            assert await ask(first, 2, ListTransactionsRequest()) is None
            assert refused == [BrokerId(2)]
            assert await first.stop(HANG_S) is None

    asyncio.run(scenario())


def test_a_peer_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with two_servers(tmp_path) as (first, second):
            await ask(first, 2, ListTransactionsRequest())
            (connection,) = second.effect_runner.connections.values()
            connection.pause_reading("test")
            assert await ask(first, 2, ListTransactionsRequest(), timeout_ms=20) is None
            assert await ask(first, 2, ListTransactionsRequest()) is not None, "on another connection"

    asyncio.run(scenario())


def test_what_is_under_way_when_a_broker_stops_ends_with_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with two_servers(tmp_path) as (first, second):
            answers: list[Any] = []
            first.node.links.request(BrokerId(2), LinkPurpose.FETCH, ListTransactionsRequest(), answers.append)
            first.effect_runner.dispatch(Continued())
            assert await first.stop(HANG_S) is None
            await until(lambda: not second.effect_runner.connections)
            assert not first.effect_runner.brokers._connecting
            assert not first.effect_runner.brokers._connected

    asyncio.run(scenario())
