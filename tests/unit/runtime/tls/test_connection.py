"""Requests over TLS arrive whole however their records are cut, and the loop never waits for more than the rest of a
record: the fake kernel wakes the connection from its low-water mark on, and knows what is still to come."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import pytest

from oncelog.base import low_water_mark
from oncelog.base.security import SecurityProtocol
from oncelog.base.units import KIB, MIB
from oncelog.core.configs.broker import BrokerConfig
from oncelog.node.listeners.tls import tls_settings
from oncelog.runtime.tls.connection import BUFFER_SIZE, TlsConnection, TlsState
from oncelog.runtime.tls.credentials import Credentials
from oncelog.runtime.tls.handshakes import Handshakes
from oncelog.wire.framing import FrameSplitter, response_limit
from tests.certificates import Authority

LISTENER = "OUTSIDE"


def whole(left: int) -> int:
    return left


def ends_of_records(stream: bytes) -> Iterator[int]:
    position = 0
    while position < len(stream):
        position += 5 + int.from_bytes(stream[position + 3 : position + 5], "big")
        yield position


class Kernel:
    """The socket and its transport: keeps what has come until it is read, and gives it from the low-water mark on."""

    def __init__(self) -> None:
        self.protocol: TlsConnection | None = None
        self.arrived = bytearray()
        self.sent = bytearray()
        self.mark = 1
        self.highest_mark = 1
        self.reads = 0
        self.is_paused = self.is_closed = False

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if (level, option) == (socket.SOL_SOCKET, socket.SO_RCVLOWAT):
            self.mark = value
            self.highest_mark = max(self.highest_mark, value)

    def receive(self, data: bytes) -> None:
        self.arrived += data
        self.deliver()

    def deliver(self) -> None:
        protocol = self.protocol
        assert protocol is not None
        while self.arrived and len(self.arrived) >= self.mark and not (self.is_paused or self.is_closed):
            room = protocol.get_buffer(-1)
            size = min(len(room), len(self.arrived))
            room[:size] = self.arrived[:size]
            del self.arrived[:size]
            self.reads += 1
            protocol.buffer_updated(size)

    def write(self, data: bytes) -> None:
        self.sent += data

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self if name == "socket" else default

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True


class Requests:
    """The connection above: cuts frames, pauses when it is told to."""

    peer = "client:1"

    def __init__(self) -> None:
        self.splitter = FrameSplitter(response_limit(100 * MIB))
        self.buffer = memoryview(bytearray(256 * KIB))
        self.frames: list[bytes] = []
        self.garbled: list[str] = []
        self.transport: asyncio.Transport | None = None

    def accept(self, transport: asyncio.Transport, admitted: Callable[[], None]) -> None:
        admitted()

    def open(self, principal: str, transport: asyncio.Transport | None = None) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.frames += map(bytes, self.splitter.feed(self.buffer[:nbytes]))

    def undecrypted(self, size: int) -> None:
        pass

    def connection_lost(self, exc: Exception | None) -> None:
        pass

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass

    def garbage(self, reason: str) -> None:
        self.garbled.append(reason)


class AtOnce:
    """Handshakes whose arithmetic is done where it is asked for."""

    def begin(self, connection: object) -> None:
        pass

    def end(self, connection: object, outcome: str) -> None:
        pass

    def step(self, connection: TlsConnection, work: Callable[[], Callable[[], None]]) -> None:
        work()()


class Link:
    """A client of OpenSSL's and a connection of ours, with the fake kernel between them."""

    def __init__(
        self,
        credentials: Credentials,
        context: ssl.SSLContext,
        cuts: Callable[[int], int] = whole,
        behind: bytes = b"",
    ) -> None:
        """``behind``: a request that is sent with the end of the handshake."""
        self.kernel, self.above = Kernel(), Requests()
        handshakes = cast("Handshakes", AtOnce())
        buffer = memoryview(bytearray(BUFFER_SIZE))
        self.ours = TlsConnection(self.above, SecurityProtocol.SSL, credentials, handshakes, buffer)
        self.kernel.protocol = self.ours
        self.ours.connection_made(cast("asyncio.Transport", self.kernel))
        self._to_client, self._from_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = context.wrap_bio(self._to_client, self._from_client, server_hostname="localhost")
        while self.ours.state is not TlsState.OPEN:
            with contextlib.suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
                self.client.write(behind)
            self.feed(self.encrypted(), cuts)
            self._to_client.write(bytes(self.kernel.sent))
            self.kernel.sent.clear()

    def encrypted(self) -> bytes:
        """The encrypted bytes that the client has to send."""
        return self._from_client.read()

    def encrypt(self, frame: bytes, writes: Callable[[int], int]) -> bytes:
        """The records of a request that is written in pieces of the sizes that ``writes`` gives for what is left."""
        stream, position = bytearray(), 0
        while position < len(frame):
            size = max(1, writes(len(frame) - position))
            self.client.write(frame[position : position + size])
            stream += self.encrypted()
            position += size
        return bytes(stream)

    def feed(self, stream: bytes, cuts: Callable[[int], int]) -> None:
        """Let it arrive in pieces; after each, no more may be waited for than the record under way lacks."""
        position = 0
        ends = ends_of_records(stream)
        end = 0
        while position < len(stream):
            size = max(1, cuts(len(stream) - position))
            self.kernel.receive(stream[position : position + size])
            position = min(position + size, len(stream))
            while end < position:
                end = next(ends)
            lacking = len(self.kernel.arrived) + end - position
            assert self.kernel.mark <= max(lacking, 1), f"{self.kernel.mark} awaited, {lacking} to come of the record"

    def arrives(self, frame: bytes, stream: bytes, cuts: Callable[[int], int]) -> None:
        """Assert that a request arrives whole."""
        self.feed(stream, cuts)
        assert self.above.frames == [frame[4:]], self.above.garbled
        assert self.kernel.mark == 1
        self.above.frames.clear()


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def credentials(authority: Authority) -> Credentials:
    listener = BrokerConfig(authority.listener(ssl_client_auth="none"))
    return Credentials(LISTENER, lambda: tls_settings(listener, LISTENER, SecurityProtocol.SSL))


@pytest.fixture(autouse=True)
def heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake kernel heeds the mark, whatever the real one does."""
    monkeypatch.setattr(low_water_mark, "HAS_LOW_WATER_MARK", True)


def tls_1_3(authority: Authority) -> ssl.SSLContext:
    return authority.context()


def tls_1_2(authority: Authority) -> ssl.SSLContext:
    context = authority.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def block_cipher(authority: Authority) -> ssl.SSLContext:
    """Records with an initialisation vector, padding and a MAC."""
    context = tls_1_2(authority)
    context.set_ciphers("ECDHE-ECDSA-AES128-SHA256")
    return context


Context = Callable[[Authority], ssl.SSLContext]
versions = pytest.mark.parametrize("context", [tls_1_3, tls_1_2, block_cipher])


def request(size: int) -> bytes:
    """A frame of ``size`` bytes in all, at least 8."""
    size = max(size, 8)
    return (size - 4).to_bytes(4, "big") + random.Random(size).randbytes(size - 4)


def in_two(cut: int, stream: bytes) -> Callable[[int], int]:
    """Pieces that end at ``cut`` and at the end of the stream."""
    return lambda left: cut if left == len(stream) else left


def places(stream: bytes, step: int) -> Iterable[int]:
    """Every position near the ends of records, and every ``step``-th between."""
    near = {end + offset for end in ends_of_records(stream) for offset in range(-40, 41)}
    return sorted(place for place in near | set(range(1, len(stream), step)) if 0 < place < len(stream))


@versions
@pytest.mark.slow
def test_a_request_arrives_wherever_its_stream_is_cut(
    credentials: Credentials, authority: Authority, context: Context
) -> None:
    link = Link(credentials, context(authority))
    for size in (1, 10_000, 16_384, 20_000, 40_000):
        frame = request(size)
        stream = link.encrypt(frame, whole)
        cuts = places(stream, step=61)
        link.arrives(frame, stream, whole)
        for cut in cuts:
            stream = link.encrypt(frame, whole)
            link.arrives(frame, stream, in_two(cut, stream))


@versions
@pytest.mark.slow
def test_a_request_of_any_size_arrives_in_pieces_of_any_size(
    credentials: Credentials, authority: Authority, context: Context
) -> None:
    """Clients cut their records as they like, too: a first of one byte, tiny ones, and those of 16 KiB."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    most = {"segments": 1_400, "small": 40, "bursts": 200_000}
    writes: list[Callable[[int], int]] = [
        whole,
        lambda left: rng.randint(1, 16_384),
        lambda left: rng.choice((1, 100, 30_000)),
    ]

    link = Link(credentials, context(authority), lambda left: rng.randint(1, 300))
    for size in (1, 1_000, 15_000, 16_384, 70_000, 200_000, MIB):
        for largest in most.values():
            if size > 2_000 * largest:
                continue
            frame = request(size)
            stream = link.encrypt(frame, rng.choice(writes))
            link.arrives(frame, stream, lambda left, largest=largest: rng.randint(1, largest))  # type: ignore[misc]


@pytest.mark.slow
def test_ten_megabytes_arrive_in_segments_with_few_reads(credentials: Credentials, authority: Authority) -> None:
    link = Link(credentials, authority.context())
    frame = request(10 * MIB)
    stream = link.encrypt(frame, whole)
    before = link.kernel.reads
    link.arrives(frame, stream, lambda left: 1_400)
    reads = link.kernel.reads - before
    assert reads < len(stream) / (8 * KIB), "two for each record; one for each segment would be 7,500"


@versions
def test_a_handshake_arrives_byte_by_byte(credentials: Credentials, authority: Authority, context: Context) -> None:
    link = Link(credentials, context(authority), lambda left: 1)
    frame = request(100)
    link.arrives(frame, link.encrypt(frame, whole), lambda left: 1)


@pytest.mark.parametrize("segment", [100, 1_400, 7_000, 100_000])
def test_a_request_behind_the_end_of_a_handshake_arrives(
    credentials: Credentials, authority: Authority, segment: int
) -> None:
    frame = request(50_000)
    link = Link(credentials, authority.context(), lambda left: segment, behind=frame)
    assert link.above.frames == [frame[4:]]


def test_a_connection_that_is_paused_again_and_again_reads_its_request(
    credentials: Credentials, authority: Authority
) -> None:
    async def scenario() -> None:
        link = Link(credentials, authority.context())
        frame = request(300_000)
        stream = link.encrypt(frame, whole)
        for start in range(0, len(stream), 1_400):
            link.ours.pause_reading()
            link.kernel.receive(stream[start : start + 1_400])
            link.ours.resume_reading()
            await asyncio.sleep(0)
            link.kernel.deliver()
        assert link.above.frames == [frame[4:]]
        assert link.kernel.mark == 1

    asyncio.run(scenario())


def test_a_request_that_is_broken_off_is_noticed(credentials: Credentials, authority: Authority) -> None:
    """The client says so by an alert, and waits for ours."""
    for sent in (1, 16_384, 20_000):
        link = Link(credentials, authority.context())
        link.feed(link.encrypt(request(40_000)[:sent], whole), lambda left: 1_400)
        with pytest.raises(ssl.SSLWantReadError):
            link.client.unwrap()
        link.kernel.receive(link.encrypted())
        assert link.kernel.is_closed
        assert link.kernel.sent, "our alert"
