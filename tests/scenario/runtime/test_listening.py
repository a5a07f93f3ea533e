"""The addresses at which a broker and its HTTP port are reached, and the end of both."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from oncelog.node.assembly import StartRefused
from oncelog.node.listeners.broker_settings import read_settings
from oncelog.runtime.server import Server
from tests.certificates import Authority
from tests.unit.listening.test_addresses import needs_ipv6

HELLO = b"\0\0\0\x0e\0\x12\0\0\0\0\0\7\0\4ping"
"""ApiVersions, version 0."""


@asynccontextmanager
async def running(directory: Path, config: Mapping[str, str]) -> AsyncIterator[Server]:
    server = Server(read_settings(dict(config), data_directory=str(directory / "data")))
    await server.start()
    try:
        yield server
    finally:
        await server.stop(5)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


async def answers(host: str, port: int, authority: Authority | None = None) -> bool:
    """True if a broker answers at an address."""
    context, name = (None, None) if authority is None else (authority.context(), "localhost")
    try:
        reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    except ConnectionRefusedError:
        return False
    writer.write(HELLO)
    answered = (await reader.readexactly(8))[4:] == b"\0\0\0\7"
    writer.close()
    return answered


@needs_ipv6
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
@pytest.mark.parametrize("host", ["[::]", ""])
def test_all_addresses_are_those_of_ipv4_and_of_ipv6(tmp_path: Path, host: str, protocol: str) -> None:
    authority = Authority()
    keys = {**authority.listener(), "listeners": f"{protocol}://{host}:0"}
    keys["security.inter.broker.protocol"] = protocol
    keys["advertised.listeners"] = f"{protocol}://localhost:9092"

    async def scenario() -> None:
        async with running(tmp_path, keys) as server:
            port = int(server.address.rpartition(":")[2])
            for client in ("127.0.0.1", "::1"):
                assert await answers(client, port, authority if protocol == "SSL" else None), client

    asyncio.run(scenario())


@needs_ipv6
@pytest.mark.parametrize("ipv4", ["0.0.0.0", "127.0.0.1"])
@pytest.mark.parametrize("is_first", [True, False])
def test_one_port_has_a_listener_for_ipv4_and_one_for_ipv6(tmp_path: Path, ipv4: str, is_first: bool) -> None:
    port = free_port()
    listeners = [f"FOUR://{ipv4}:{port}", f"SIX://[::]:{port}"]
    keys = {
        "listeners": ",".join(listeners if is_first else reversed(listeners)),
        "listener.security.protocol.map": "FOUR:PLAINTEXT,SIX:PLAINTEXT",
        "inter.broker.listener.name": "SIX",
        "advertised.listeners": f"FOUR://127.0.0.1:{port},SIX://[::1]:{port}",
    }

    async def scenario() -> None:
        async with running(tmp_path, keys):
            assert await answers("127.0.0.1", port)
            assert await answers("::1", port)

    asyncio.run(scenario())


def test_a_port_that_is_taken_ends_the_start_and_leaves_nothing_bound(tmp_path: Path) -> None:
    port = free_port()
    keys = {
        "listeners": f"A://127.0.0.1:{port},B://127.0.0.1:0,C://[::]:{{taken}}",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT",
        "inter.broker.listener.name": "A",
        "advertised.listeners": "A://127.0.0.1:1",
    }

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            number = taken.getsockname()[1]
            keys["listeners"] = keys["listeners"].format(taken=number)
            with pytest.raises(StartRefused, match=rf"cannot listen on \[::\]:{number}: address already in use; stop"):
                async with running(tmp_path, keys):
                    pass
        with socket.create_server(("127.0.0.1", port)):
            pass

    asyncio.run(scenario())


@needs_ipv6
@pytest.mark.parametrize("host", ["[::]", ""])
def test_the_http_port_is_reached_by_both_and_ends_with_the_broker(tmp_path: Path, host: str) -> None:
    async def scenario() -> None:
        async with running(tmp_path, {"listeners": "PLAINTEXT://127.0.0.1:0"}) as server:
            port = int((await server.start_http(f"{host}:0")).rpartition(":")[2])
            for client in ("127.0.0.1", "::1"):
                reader, writer = await asyncio.open_connection(client, port)
                writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
                assert (await reader.read()).startswith(b"HTTP/1.1 200")
                writer.close()
            silent, other = await asyncio.open_connection("::1", port)
        assert await silent.read() == b""
        other.close()

    asyncio.run(scenario())


def test_metrics_are_asked_for_by_names_of_the_broker(tmp_path: Path) -> None:
    keys = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "advertised.listeners": "PLAINTEXT://Broker-1.example:9092",
        "oncelog.http.names": "metrics.example",
    }

    async def scenario() -> None:
        async with running(tmp_path, keys) as server:
            port = int((await server.start_http("127.0.0.1:0")).rpartition(":")[2])
            names = ("broker-1.example:9100", "metrics.example", socket.gethostname(), "127.0.0.1", "evil.example")
            statuses = []
            for name in names:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(f"GET /metrics HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
                statuses.append((await reader.read())[9:12])
                writer.close()
            assert statuses == [b"200"] * 4 + [b"421"]

    asyncio.run(scenario())
