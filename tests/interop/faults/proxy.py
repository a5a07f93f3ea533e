"""A TCP proxy between clients and a broker that does what networks do: delay, throttle, swallow one direction, reset.

An asyncio server in a thread of its own. TCP stays TCP: nothing is lost or reordered within a connection that lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
import threading
import warnings
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar
from weakref import WeakSet

from tests.waiting import HANG_S

T = TypeVar("T")

_CHUNK: Final = 64 << 10
_POLL_S: Final = 0.005
_END_S: Final = 0.5


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


FINE: Final = NetworkConditions()


class Proxy:
    """Listens on a port of its own and passes everything on to ``target``."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._conditions = FINE
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._writers: WeakSet[asyncio.StreamWriter] = WeakSet()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._accept, "127.0.0.1", 0))
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

        async def reset() -> None:
            for pair in list(self._pairs):
                for writer in pair:
                    _reset(writer)

        self._call(reset())

    def close(self) -> None:
        """End it and all its connections."""

        async def end() -> None:
            self._server.close()
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
        _reset(writer)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(*self._target)
        self._writers.add(to_writer)
        pair = (writer, to_writer)
        self._pairs.add(pair)
        try:
            await asyncio.gather(
                self._pump(reader, to_writer, answers=False), self._pump(to_reader, writer, answers=True)
            )
        finally:
            self._pairs.discard(pair)
            to_writer.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, answers: bool) -> None:
        """Pass bytes on until either side is gone."""
        with contextlib.suppress(OSError):
            while data := await source.read(_CHUNK):
                await self._conditions_permitting(len(data), target, answers=answers)
                target.write(data)
                await target.drain()
        for each in [writer for pair in self._pairs if target in pair for writer in pair]:
            each.transport.abort()

    async def _conditions_permitting(self, size: int, target: asyncio.StreamWriter, *, answers: bool) -> None:
        if self._conditions is FINE:
            return
        conditions = self._conditions
        await asyncio.sleep(conditions.delay_s + (size / conditions.bytes_per_s if conditions.bytes_per_s else 0))
        while not (self._conditions.answers_pass if answers else self._conditions.requests_pass):
            if target.transport.is_closing():
                return
            await asyncio.sleep(_POLL_S)


def _reset(writer: asyncio.StreamWriter) -> None:
    """RST instead of FIN: what is on the way is lost."""
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
