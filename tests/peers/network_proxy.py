"""A TCP proxy between clients and a broker that does what networks do: cut, delay, throttle, swallow, reset.

An asyncio server in a thread of its own. TCP stays TCP: nothing is lost or reordered within a connection that lives,
and each direction ends by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import random
import socket
import ssl
import struct
import threading
import warnings
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar
from weakref import WeakSet

from tests.waiting import HANG_S

T = TypeVar("T")

_CHUNK: Final = 64 << 10
_POLL_S: Final = 0.005
_END_S: Final = 0.5


@dataclass(frozen=True)
class Cuts:
    """A network of small packets: bytes go on in pieces of 1 to ``most_bytes``, with sizes and pauses by the seed."""

    seed: int
    most_bytes: int = 1_400
    pause_s: float = 0.002
    """The longest pause between two pieces."""
    pieces_a_pause: int = 32
    """One piece in so many is followed by a pause; and the last of those that came together comes after one."""

    def sizes(self, rng: random.Random, count: int) -> Iterator[int]:
        """Sizes of the pieces of ``count`` bytes: many are a few bytes, most are large."""
        while count > 0:
            size = min(count, rng.randint(1, rng.choice((8, self.most_bytes, self.most_bytes))))
            yield size
            count -= size

    def pause_after(self, rng: random.Random, left: int) -> float:
        """The pause behind a piece when so many bytes are left."""
        is_before_last = 0 < left <= self.most_bytes
        return rng.uniform(0, self.pause_s) if is_before_last or rng.randrange(self.pieces_a_pause) == 0 else 0.0


@dataclass(frozen=True)
class NetworkConditions:
    """The fate of bytes on their way."""

    delay_s: float = 0.0
    """Before each piece is passed on, in either direction."""
    bytes_per_s: float = 0.0
    """0: as fast as they come."""
    requests_pass: bool = True
    """False: bytes to the broker stay on the way until it is fine again, or the connection is reset."""
    answers_pass: bool = True
    connects: bool = True
    """False: new connections are refused."""
    cuts: Cuts | None = None
    """None: bytes are passed on in the pieces in which they come."""


FINE: Final = NetworkConditions()


class Proxy:
    """Listens on a port of its own and passes everything on to ``target``."""

    def __init__(
        self,
        target: tuple[str, int],
        *,
        conditions: NetworkConditions = FINE,
        tls: ssl.SSLContext | None = None,
        listening: socket.socket | None = None,
    ) -> None:
        """``tls``: connect to the target over TLS; ``listening``: a bound socket in place of any free port."""
        self._target = target
        self._tls = tls
        self._conditions = conditions
        self._numbers = itertools.count()
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._writers: WeakSet[asyncio.StreamWriter] = WeakSet()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()
        place = {"host": "127.0.0.1", "port": 0} if listening is None else {"sock": listening}
        self._server = self._call(asyncio.start_server(self._accept, **place))
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def bootstrap_servers(self) -> str:
        """The addresses that clients are given."""
        return f"127.0.0.1:{self.port}"

    def change(self, **conditions: Any) -> None:
        """Set the conditions of the network from now on; what is not named is fine."""
        self._conditions = replace(FINE, **conditions)

    def reset_all(self) -> None:
        """Reset every connection: both sides get RST."""

        async def reset_pairs() -> None:
            for pair in list(self._pairs):
                for writer in pair:
                    reset(writer)

        self._call(reset_pairs())

    def refuse(self) -> None:
        """Listen no more; connections go on."""
        self._loop.call_soon_threadsafe(self._server.close)

    def close(self, grace_s: float = 0.0) -> None:
        """End it and all its connections, those that end by themselves within ``grace_s`` in order."""

        async def end() -> None:
            self._server.close()
            if grace_s and (tasks := asyncio.all_tasks() - {asyncio.current_task()}):
                await asyncio.wait(tasks, timeout=grace_s)
            self._conditions = replace(FINE, connects=False)
            while others := asyncio.all_tasks() - {asyncio.current_task()}:
                for writer in list(self._writers):
                    writer.transport.abort()
                _, waiting = await asyncio.wait(others, timeout=_END_S)
                for task in waiting:  # on its way through a bad network
                    task.cancel()
            for writer in list(self._writers):
                writer.transport.abort()
            await asyncio.sleep(_POLL_S)

        self._call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        with warnings.catch_warnings():  # clients connect to the last: asyncio may hold sockets it never told us of
            warnings.simplefilter("ignore", ResourceWarning)
            del self._server
            gc.collect()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(HANG_S)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(OSError, asyncio.CancelledError):  # asyncio's streams report a cancelled one as a bug
            if self._conditions.connects:
                await self._connect(reader, writer)
                return
        reset(writer)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host = "localhost" if self._tls else None
        to_reader, to_writer = await asyncio.open_connection(*self._target, ssl=self._tls, server_hostname=host)
        self._writers.add(to_writer)
        pair = (writer, to_writer)
        self._pairs.add(pair)
        number = next(self._numbers)
        try:
            await asyncio.gather(
                self._pump(reader, to_writer, number, answers=False),
                self._pump(to_reader, writer, number, answers=True),
            )
            for item in pair:
                item.close()
                await item.wait_closed()
        finally:
            self._pairs.discard(pair)
            for item in pair:
                item.transport.abort()

    async def _pump(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, number: int, *, answers: bool
    ) -> None:
        """Pass bytes on until the source ends, then its end. Raises OSError where a connection breaks."""
        cuts = self._conditions.cuts
        rng = random.Random(f"{cuts.seed if cuts else 0} {number} {answers}")
        while data := await source.read(_CHUNK):
            await self._conditions_permitting(len(data), target, answers=answers)
            if (cuts := self._conditions.cuts) is None:
                target.write(data)
                await target.drain()
            else:
                await _pass_on_cut(data, target, cuts, rng)
        if target.can_write_eof():
            target.write_eof()
        else:
            target.close()
            await target.wait_closed()

    async def _conditions_permitting(self, size: int, target: asyncio.StreamWriter, *, answers: bool) -> None:
        if self._conditions is FINE:
            return
        conditions = self._conditions
        await asyncio.sleep(conditions.delay_s + (size / conditions.bytes_per_s if conditions.bytes_per_s else 0))
        while not (self._conditions.answers_pass if answers else self._conditions.requests_pass):
            if target.transport.is_closing():
                return
            await asyncio.sleep(_POLL_S)


async def _pass_on_cut(data: bytes, target: asyncio.StreamWriter, cuts: Cuts, rng: random.Random) -> None:
    position = 0
    for size in cuts.sizes(rng, len(data)):
        target.write(data[position : position + size])
        position += size
        await target.drain()
        if pause_s := cuts.pause_after(rng, len(data) - position):
            await asyncio.sleep(pause_s)


def reset(writer: asyncio.StreamWriter) -> None:
    """RST instead of FIN: what is on the way is lost."""
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
