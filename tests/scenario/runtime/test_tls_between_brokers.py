"""Brokers that reach each other by a listener with TLS: both show certificates, and host names are verified."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from oncelog.node.listeners.broker_settings import read_settings
from oncelog.runtime.server import Server
from oncelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.certificates import Authority, Identity
from tests.scenario.runtime.test_broker_links import ask, until

INSIDE = {
    "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SSL",
    "inter.broker.listener.name": "INSIDE",
    "listener.name.inside.ssl.client.auth": "required",
}


@asynccontextmanager
async def two_servers(
    tmp_path: Path, first: Mapping[str, str], second: Mapping[str, str]
) -> AsyncIterator[list[Server]]:
    servers = []
    for broker_id, keys in ((1, first), (2, second)):
        config = {"node.id": str(broker_id), "oncelog.tree.path": str(tmp_path / "tree.db"), **INSIDE, **keys}
        servers.append(Server(read_settings(config, data_directory=str(tmp_path / str(broker_id)))))
        await servers[-1].start()
    await until(lambda: len(servers[0].node.cluster.image.brokers) == 2)
    try:
        yield servers
    finally:
        for server in servers:
            await server.abandon()


def handshakes(server: Server) -> dict[str, int]:
    assert server._acceptors is not None
    assert server._acceptors.tls is not None
    assert server._acceptors.tls.handshakes is not None
    return {name: count for name, count in server._acceptors.tls.handshakes.outcomes.items() if count}


def test_brokers_show_each_other_certificates(tmp_path: Path) -> None:
    authority = Authority()

    async def scenario() -> None:
        async with two_servers(tmp_path, authority.listener(), authority.listener()) as (first, second):
            assert await ask(first, 2, ListTransactionsRequest()) == ListTransactionsResponse()
            assert await ask(second, 1, ListTransactionsRequest()) == ListTransactionsResponse()
            assert handshakes(second)["completed"] >= 1
            assert {
                broker.endpoint("INSIDE").protocol.value for broker in first.node.cluster.image.brokers.values()
            } == {"SSL"}  # type: ignore[union-attr]

    asyncio.run(scenario())


@pytest.mark.parametrize("which", ["another host", "another authority", "expired"])
def test_a_broker_that_is_not_who_it_should_be_is_not_asked(
    tmp_path: Path, which: str, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority()
    impostors: Mapping[str, Identity] = {
        "another host": authority.broker("elsewhere.example"),
        "another authority": Authority().broker(),
        "expired": authority.expired(),
    }

    async def scenario() -> None:
        other = authority.listener(impostors[which])
        async with two_servers(tmp_path, authority.listener(), other) as (first, _):
            assert await ask(first, 2, ListTransactionsRequest(), timeout_ms=2000) is None

    with caplog.at_level(logging.WARNING, "oncelog.broker"):
        asyncio.run(scenario())
    assert "no TLS with the broker at 127.0.0.1" in caplog.text


def test_host_names_are_not_verified_where_that_is_switched_off(tmp_path: Path) -> None:
    authority = Authority()
    unverified = {"ssl.endpoint.identification.algorithm": ""}

    async def scenario() -> None:
        listener = authority.listener(authority.broker("elsewhere.example")) | unverified
        async with two_servers(tmp_path, listener, listener) as (first, _):
            assert await ask(first, 2, ListTransactionsRequest()) == ListTransactionsResponse()

    asyncio.run(scenario())
