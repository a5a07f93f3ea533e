"""TLS over real sockets: who is let in and who is not, how connections end, and certificates that change."""

from __future__ import annotations

import asyncio
import datetime
import logging
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type

from oncelog.base.low_water_mark import HAS_LOW_WATER_MARK
from oncelog.node.kernel.events import ConnectionOpened, Event
from oncelog.node.listeners.broker_settings import read_settings
from oncelog.node.listeners.certificates import read_certificate
from oncelog.runtime.connections.client_connection import ClientConnection
from oncelog.runtime.server import Server
from oncelog.runtime.tls import listeners as tls_listeners
from oncelog.runtime.tls.connection import TlsConnection
from oncelog.wire.header import RequestHeader, encode_request
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from tests.certificates import Authority, Identity, self_signed
from tests.waiting import HANG_S, POLL_S

HELLO = b"".join(map(bytes, encode_request(RequestHeader(18, 0, 7, "test"), ApiVersionsRequest())))


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


class Secured:
    """A broker with a PLAINTEXT and an SSL listener, and the principals of the connections that it opened."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.principals: list[tuple[str, str]] = []
        handle = server.node.handle

        def watched(event: Event, now_ms: int) -> Any:
            if isinstance(event, ConnectionOpened):
                self.principals.append((event.listener_name, event.principal))
            return handle(event, now_ms)

        server.node.handle = watched  # type: ignore[method-assign]

    def port(self, listener: str = "SSL") -> int:
        assert self.server._acceptors is not None
        return self.server._acceptors.addresses[listener][1]

    def outcomes(self) -> dict[str, int]:
        tls = self.server._acceptors.tls if self.server._acceptors is not None else None
        assert tls is not None
        assert tls.handshakes is not None
        return {name: count for name, count in tls.handshakes.outcomes.items() if count}


@asynccontextmanager
async def secured(tmp_path: Path, authority: Authority, **keys: str) -> AsyncIterator[Secured]:
    config = authority.listener() | {key.replace("_", "."): text for key, text in keys.items()}
    config["listeners"] = "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"
    server = Server(read_settings(config, data_directory=str(tmp_path / "data")))
    await server.start()
    try:
        yield Secured(server)
    finally:
        await server.abandon()


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(HANG_S):
            await scenario()

    asyncio.run(bounded())


async def ask(port: int, context: ssl.SSLContext | None) -> bytes:
    """The answer to ApiVersions; empty if the broker has closed. Raises what TLS raises."""
    reader, writer = await asyncio.open_connection("localhost", port, ssl=context, family=socket.AF_INET)
    try:
        writer.write(HELLO)
        size = await reader.read(4)
        return size and await reader.readexactly(struct.unpack(">i", size)[0])
    finally:
        writer.close()


async def is_refused(port: int, context: ssl.SSLContext | None) -> bool:
    """True if the broker ends the connection without an answer."""
    try:
        return not await ask(port, context)
    except (OSError, asyncio.IncompleteReadError):
        return True


def test_a_certificate_names_the_principal_and_none_is_anonymous(tmp_path: Path, authority: Authority) -> None:
    alice = authority.client()

    async def scenario() -> None:
        async with secured(tmp_path, authority, ssl_client_auth="requested") as broker:
            assert await ask(broker.port(), authority.context())
            assert await ask(broker.port(), authority.context(alice, tmp_path))
            assert await ask(broker.port("PLAINTEXT"), None)
            assert broker.principals == [
                ("SSL", "User:ANONYMOUS"),
                ("SSL", f"User:{read_certificate(alice.der).subject}"),
                ("PLAINTEXT", "User:ANONYMOUS"),
            ]
            assert broker.outcomes() == {"completed": 2}

    run(scenario)


def test_mapping_rules_decide_the_principal_and_whom_none_maps_is_not_let_in(
    tmp_path: Path, authority: Authority
) -> None:
    rules = {"ssl_client_auth": "required", "ssl_principal_mapping_rules": "RULE:^CN=(a.*?),.*$/$1/U"}

    async def scenario() -> None:
        async with secured(tmp_path, authority, **rules) as broker:
            assert await ask(broker.port(), authority.context(authority.client(), tmp_path))
            assert await is_refused(broker.port(), authority.context(authority.client("bob"), tmp_path))
            assert broker.principals == [("SSL", "User:ALICE")]

    run(scenario)


def test_a_name_in_an_encoding_that_reads_as_another_is_not_let_in(tmp_path: Path, authority: Authority) -> None:
    """The CA has signed for two other characters; their bytes are those of "admi"."""
    attribute = x509.NameAttribute(x509.NameOID.COMMON_NAME, "慤浩", _type=_ASN1Type.BMPString)

    async def scenario() -> None:
        async with secured(tmp_path, authority, ssl_client_auth="requested") as broker:
            assert await is_refused(broker.port(), authority.context(authority.named(x509.Name([attribute])), tmp_path))
            assert not broker.principals
            assert broker.outcomes() == {"failed": 1}

    run(scenario)


def test_client_auth_without_prefix_is_not_for_sasl_ssl(tmp_path: Path, authority: Authority) -> None:
    """There SASL says who it is, and a client has no certificate to show unless that listener asks for one itself."""
    listeners = {"listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0", "ssl.client.auth": "required"}
    listeners["sasl.enabled.mechanisms"] = "SCRAM-SHA-256"
    own = {"listener.name.sasl_ssl.ssl.client.auth": "required"}

    async def handshake(**more: str) -> bool:
        config = authority.listener() | listeners | more
        server = Server(read_settings(config, data_directory=str(tmp_path / f"data{len(more)}")))
        await server.start()
        try:
            assert server._acceptors is not None
            return not await is_refused(server._acceptors.addresses["SASL_SSL"][1], authority.context())
        finally:
            await server.abandon()

    async def scenario() -> None:
        assert await handshake()
        assert not await handshake(**own)

    run(scenario)


NOBODYS = {
    "none": lambda authority: None,
    "expired": Authority.expired,
    "another authority of the same name": lambda authority: Authority().client(),
    "self-signed": lambda authority: self_signed(),
    "for servers only": Authority.server_only,
}


@pytest.mark.parametrize("which", NOBODYS)
def test_certificates_that_are_not_taken(tmp_path: Path, authority: Authority, which: str) -> None:
    identity: Identity | None = NOBODYS[which](authority)

    async def scenario() -> None:
        async with secured(tmp_path, authority, ssl_client_auth="required") as broker:
            assert await is_refused(broker.port(), authority.context(identity, tmp_path))
            assert broker.principals == []
            assert broker.outcomes() == {"failed": 1}

    run(scenario)


def test_a_bad_certificate_is_not_taken_where_one_is_only_requested(tmp_path: Path, authority: Authority) -> None:
    async def scenario() -> None:
        async with secured(tmp_path, authority, ssl_client_auth="requested") as broker:
            assert await is_refused(broker.port(), authority.context(self_signed(), tmp_path))
            assert broker.principals == []

    run(scenario)


@pytest.mark.filterwarnings("ignore:.*TLSv1_1 is deprecated:DeprecationWarning")
def test_versions_of_tls_that_are_not_enabled_are_refused(tmp_path: Path, authority: Authority) -> None:
    old, middle = authority.context(), authority.context()
    old.set_ciphers("DEFAULT@SECLEVEL=0")
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_1
    middle.maximum_version = ssl.TLSVersion.TLSv1_2

    async def scenario() -> None:
        async with secured(tmp_path, authority) as broker:
            assert await is_refused(broker.port(), old)
            assert await ask(broker.port(), middle)
        async with secured(tmp_path / "2", authority, ssl_enabled_protocols="TLSv1.3") as broker:
            assert await is_refused(broker.port(), middle)
            assert await ask(broker.port(), authority.context())

    run(scenario)


def test_suites_are_those_that_are_configured(tmp_path: Path, authority: Authority) -> None:
    """By Java's names; without one of TLS 1.3 there is no TLS 1.3."""
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"

    async def scenario() -> None:
        async with secured(tmp_path, authority, ssl_cipher_suites=suite) as broker:
            _, writer = await asyncio.open_connection("127.0.0.1", broker.port(), ssl=authority.context())
            tls = writer.get_extra_info("ssl_object")
            assert (tls.version(), tls.cipher()[0]) == ("TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256")
            writer.close()

    run(scenario)


def test_plaintext_to_tls_and_tls_to_plaintext_end_at_once(tmp_path: Path, authority: Authority) -> None:
    async def scenario() -> None:
        async with secured(tmp_path, authority) as broker:
            assert await is_refused(broker.port(), None)
            assert await is_refused(broker.port("PLAINTEXT"), authority.context())
            assert await ask(broker.port(), authority.context())

    run(scenario)


def test_handshakes_that_do_not_end_are_cut_off(tmp_path: Path, authority: Authority) -> None:
    """A silent one, and one that stops in the middle of its first message."""

    async def scenario() -> None:
        async with secured(tmp_path, authority, oncelog_tls_handshake_timeout_ms="50") as broker:
            silent = await asyncio.open_connection("127.0.0.1", broker.port())
            halting = await asyncio.open_connection("127.0.0.1", broker.port())
            halting[1].write(b"\x16\x03\x01\x02\x00\x01")
            for reader, writer in (silent, halting):
                assert await ended(reader)
                writer.close()
            assert broker.outcomes() == {"timed_out": 2}
            while await is_refused(broker.port(), authority.context()):
                assert broker.outcomes()["timed_out"] > 2, "refused, and not because a busy machine took 50 ms"

    run(scenario)


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except OSError:
        return True


def test_the_longest_handshake_makes_room(tmp_path: Path, authority: Authority) -> None:
    async def scenario() -> None:
        async with secured(tmp_path, authority, oncelog_tls_handshakes_max="2") as broker:
            silent = [await asyncio.open_connection("127.0.0.1", broker.port()) for _ in range(2)]
            assert await ask(broker.port(), authority.context())
            assert await ended(silent[0][0])
            assert broker.outcomes() == {"displaced": 1, "completed": 1}
            for _, writer in silent:
                writer.close()

    run(scenario)


def test_large_requests_and_responses_go_through_in_pieces(tmp_path: Path, authority: Authority) -> None:
    """More than a thousand requests at once, each answered; the broker reads no faster than its answers are taken."""

    async def scenario() -> None:
        async with secured(tmp_path, authority) as broker:
            context = authority.context()
            reader, writer = await asyncio.open_connection(
                "localhost", broker.port(), ssl=context, family=socket.AF_INET
            )
            writer.write(HELLO * 1500)
            for _ in range(1500):
                size = struct.unpack(">i", await reader.readexactly(4))[0]
                assert (await reader.readexactly(size))[:4] == b"\0\0\0\7"
            writer.close()

    run(scenario)


class RawClient:
    """A client whose encrypted bytes are sent when a test wants them to be."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    async def connect(self, port: int) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        await self._until_done(self._tls.do_handshake)

    def encrypted(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._outgoing.read()

    async def read(self) -> bytes:
        return await self._until_done(lambda: self._tls.read(1 << 20))

    async def _until_done(self, step: Callable[[], Any]) -> Any:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                self.writer.write(self._outgoing.read())
                self._incoming.write(await self.reader.read(1 << 20))
            finally:
                self.writer.write(self._outgoing.read())


@pytest.mark.skipif(not HAS_LOW_WATER_MARK, reason="the low-water mark of a socket is Linux's")
def test_the_rest_of_a_record_is_waited_for_and_no_more(tmp_path: Path, authority: Authority) -> None:
    """All but the last bytes of a request arrive, and the rest when the broker waits for just that."""

    async def scenario() -> None:
        async with secured(tmp_path, authority) as broker:
            client = RawClient(authority.context())
            await client.connect(broker.port())
            client.writer.write(client.encrypted(HELLO))
            assert await client.read()
            quotas = broker.server._quotas
            assert quotas is not None
            [connection] = [item for item in quotas._admitted if isinstance(item, ClientConnection)]
            assert connection._transport is not None
            sock = connection._transport.get_extra_info("socket")

            def wakes_from() -> int:
                return int(sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT))

            request = RequestHeader(18, 0, 9, "c" * 30_000)  # ApiVersions, of a client with a long name
            frame = b"".join(map(bytes, encode_request(request, ApiVersionsRequest())))
            for late in (1, 100, 2_000, 13_000):
                assert wakes_from() == 1
                stream = client.encrypted(frame)
                client.writer.write(stream[:-late])
                while wakes_from() != late:
                    await asyncio.sleep(POLL_S)
                client.writer.write(stream[-late:])
                assert (await client.read())[4:8] == b"\0\0\0\x09"
            client.writer.close()

    run(scenario)


def certificate_of(port: int, authority: Authority) -> bytes:
    context = authority.context()
    with (
        socket.create_connection(("127.0.0.1", port)) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as tls,
    ):
        getpeercert = tls.getpeercert(binary_form=True)
        assert getpeercert is not None
        return getpeercert


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_listeners, "LOOK_EVERY_S", POLL_S)


def test_a_file_that_changes_is_taken_up_and_a_broken_one_changes_nothing(
    tmp_path: Path, authority: Authority, looks_often: None, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = authority.broker(), authority.broker()
    path = first.write(tmp_path, "store")
    keys = {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(path)}

    async def shown(broker: Secured) -> bytes:
        return await asyncio.to_thread(certificate_of, broker.port(), authority)

    async def scenario() -> None:
        config = {**authority.listener(), **{key.replace("_", "."): text for key, text in keys.items()}}
        del config["ssl.keystore.key"], config["ssl.keystore.certificate.chain"]
        config["listeners"] = "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"
        server = Server(read_settings(config, data_directory=str(tmp_path / "data")))
        await server.start()
        try:
            broker = Secured(server)
            assert await shown(broker) == first.der
            path.write_text("nothing that can be read")
            await until(lambda: "keeps its present certificate" in caplog.text)
            assert await shown(broker) == first.der
            replaced = second.write(tmp_path, "new")
            os.replace(replaced, path)
            await until(lambda: "new handshakes use the changed certificate" in caplog.text)
            assert await shown(broker) == second.der
        finally:
            await server.abandon()

    with caplog.at_level(logging.INFO, "oncelog.broker"):
        run(scenario)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(POLL_S)


def test_a_certificate_that_ends_soon_is_warned_of(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    soon = authority.ending(datetime.timedelta(days=29))
    inline = {"ssl_keystore_key": soon.key, "ssl_keystore_certificate_chain": soon.chain}

    async def scenario() -> None:
        async with secured(tmp_path, authority, **inline):
            pass

    with caplog.at_level(logging.WARNING, "oncelog.broker"):
        run(scenario)
    assert "the certificate of listener SSL expires" in caplog.text


def test_what_a_paused_connection_has_not_decrypted_is_counted(tmp_path: Path, authority: Authority) -> None:
    async def scenario() -> None:
        async with secured(tmp_path, authority) as broker:
            reader, writer = await asyncio.open_connection(
                "localhost", broker.port(), ssl=authority.context(), family=socket.AF_INET
            )
            quotas = broker.server._quotas
            assert quotas is not None
            writer.write(HELLO)
            assert await reader.read(4)
            [connection] = [item for item in quotas._admitted if isinstance(item, ClientConnection)]
            before = quotas.held_bytes
            connection.pause_reading("test")
            tls = connection._transport
            assert isinstance(tls, TlsConnection)
            tls._incoming.write(b"\x17\x03\x03\x00\x40" + bytes(20_000))  # as it arrives while nothing is read
            tls._decrypt()
            assert quotas.held_bytes - before == 20_005
            connection.abort()
            while quotas.connections:
                await asyncio.sleep(POLL_S)
            assert quotas.held_bytes == 0
            writer.close()

    run(scenario)
