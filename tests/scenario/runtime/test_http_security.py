"""The HTTP port with TLS and a token, and the broker's own keeping: what others on the host may not read."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from pathlib import Path

import pytest

from oncelog.node.assembly import StartRefused
from oncelog.node.listeners.broker_settings import read_settings
from oncelog.runtime.server import Server
from tests.certificates import Authority


async def get(address: str, path: str, context: ssl.SSLContext | None = None, authorization: str = "") -> bytes:
    port = int(address.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("localhost", port, ssl=context, family=socket.AF_INET)
    writer.write(f"GET {path} HTTP/1.1\r\n{authorization}\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer


def test_pages_need_the_token_but_health_does_not(tmp_path: Path) -> None:
    authority = Authority()
    path = authority.broker().write(tmp_path)
    keys = {
        "oncelog.http.token": "open sesame",
        "oncelog.http.ssl.keystore.location": str(path),
        **authority.listener(),
    }
    keys["listeners"] = "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"

    async def scenario() -> None:
        server = Server(read_settings(keys, data_directory=str(tmp_path / "data")))
        await server.start()
        try:
            address = await server.start_http("127.0.0.1:0")
            context = authority.context()
            assert (await get(address, "/metrics", context)).startswith(b"HTTP/1.1 401 Unauthorized")
            assert b" 401 " in await get(address, "/metrics", context, "Authorization: Bearer open")
            page = await get(address, "/metrics", context, "authorization:  Bearer open sesame")
            assert b" 200 OK" in page
            assert b'oncelog_tls_certificate_expiry_timestamp_seconds{listener="SSL"}' in page
            assert b'oncelog_tls_handshakes_total{outcome="completed"} 0.0' in page
            assert b" 200 OK" in await get(address, "/health", context)
        finally:
            await server.stop(5)

    asyncio.run(scenario())


def test_an_http_port_that_anybody_reaches_is_warned_of_or_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(required: str) -> None:
        config = {"oncelog.require.security": required}
        server = Server(read_settings(config, data_directory=str(tmp_path / required), listen=("127.0.0.1", 0)))
        await server.start()
        try:
            await server.start_http("0.0.0.0:0")
        finally:
            await server.stop(5)

    with caplog.at_level(logging.WARNING, "oncelog.broker"):
        asyncio.run(scenario("false"))
    assert "without a token" in caplog.text
    with pytest.raises(StartRefused, match=r"oncelog.require.security=true: the HTTP port"):
        asyncio.run(scenario("true"))
