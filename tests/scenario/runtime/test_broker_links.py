"""Two brokers on one event loop, over real sockets: questions, large answers, and ends of all kinds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from oncelog.base.ids import BrokerId, uuid_text
from oncelog.coordination.memory import MemoryTree
from oncelog.node.assembly import Outside
from oncelog.node.events import Continued
from oncelog.node.links.broker_links import LinkPurpose
from oncelog.node.settings import Settings, read_settings
from oncelog.runtime import server as server_module
from oncelog.runtime.clock import SystemEntropy
from oncelog.runtime.data_directory import DataDirectory
from oncelog.runtime.files import DiskFiles
from oncelog.runtime.server import Server
from oncelog.storage.meta_properties import MetaProperties, write_meta_properties
from oncelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.waiting import HANG_S

CLUSTER_ID = uuid_text(bytes(16))


class MemoryTreeOfMany:
    """Gives every data directory a session of one tree."""

    def __init__(self) -> None:
        self._tree = MemoryTree()

    def open(self, settings: Settings) -> DataDirectory:
        path = Path(settings.data_directory)
        files = DiskFiles(path)
        files.lock()
        broker_id = BrokerId(int(path.name))
        write_meta_properties(files, MetaProperties(CLUSTER_ID, broker_id, uuid_text(broker_id.to_bytes(16, "big"))))
        nothing_to_close: Any = type("Tree", (), {"close": lambda self: None})()
        return DataDirectory(files, nothing_to_close, Outside(files, self._tree.session(), SystemEntropy()))


@asynccontextmanager
async def two_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Server]]:
    monkeypatch.setattr(server_module, "open_data_directory", MemoryTreeOfMany().open)
    servers = []
    for broker_id in (1, 2):
        directory = tmp_path / str(broker_id)
        settings = read_settings({"node.id": str(broker_id)}, data_directory=str(directory), listen=("127.0.0.1", 0))
        servers.append(Server(settings))
        await servers[-1].start()
    await until(lambda: len(servers[0].node.cluster.image.brokers) == 2)
    try:
        yield servers
    finally:
        for each in servers:
            if each._data_directory is not None:
                await each.abandon()


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop go round until something is so."""
    async with asyncio.timeout(HANG_S):
        while not condition():
            await asyncio.sleep(0)


async def ask(server: Server, broker_id: int, message: Any, timeout_ms: int | None = None) -> Any:
    """Ask another broker over a link."""
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    runner = server.effect_runner
    server.node.links.request(BrokerId(broker_id), LinkPurpose.CONTROL, message, answered.set_result, timeout_ms)
    runner.dispatch(Continued())
    async with asyncio.timeout(HANG_S):
        return await answered


def test_brokers_ask_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with two_servers(tmp_path, monkeypatch) as (first, second):
            assert await ask(first, 2, ListTransactionsRequest()) == ListTransactionsResponse()
            answer = cast("MetadataResponse", await ask(second, 1, MetadataRequest(topics=None)))
            assert sorted(broker.node_id for broker in answer.brokers) == [1, 2]
            assert len(first.effect_runner.connections) == len(second.effect_runner.connections) == 1
            for server in (first, second):
                assert await server.stop(HANG_S) is None

    asyncio.run(scenario())


def test_a_stopped_broker_refuses_and_one_that_is_killed_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with two_servers(tmp_path, monkeypatch) as (first, second):
            refused: list[BrokerId] = []
            first.node.links.on_refused.append(refused.append)
            assert await ask(first, 2, ListTransactionsRequest()) is not None
            second.halt()
            await until(lambda: not first.effect_runner.brokers._connected)
            assert await ask(first, 2, ListTransactionsRequest()) is None
            assert refused == [BrokerId(2)]
            assert await first.stop(HANG_S) is None

    asyncio.run(scenario())


def test_a_peer_that_says_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with two_servers(tmp_path, monkeypatch) as (first, second):
            await ask(first, 2, ListTransactionsRequest())
            (connection,) = second.effect_runner.connections.values()
            connection.pause_reading("test")
            assert await ask(first, 2, ListTransactionsRequest(), timeout_ms=20) is None
            assert await ask(first, 2, ListTransactionsRequest()) is not None, "on another connection"

    asyncio.run(scenario())


def test_what_is_under_way_when_a_broker_stops_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with two_servers(tmp_path, monkeypatch) as (first, second):
            answers: list[Any] = []
            first.node.links.request(BrokerId(2), LinkPurpose.FETCH, ListTransactionsRequest(), answers.append)
            first.effect_runner.dispatch(Continued())
            assert await first.stop(HANG_S) is None
            await until(lambda: not second.effect_runner.connections)
            assert not first.effect_runner.brokers._connecting
            assert not first.effect_runner.brokers._connected

    asyncio.run(scenario())
