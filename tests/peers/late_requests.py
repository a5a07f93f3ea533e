"""A proxy that keeps one request of a client back until it is told to send it: the network's late duplicate.

The rule: the client's connection is reset, so that the client asks again on another one, and the connection to the
broker stays open with the request still to come. TCP does the same where a packet is lost and the client gives up
first: what was sent on the old connection arrives after what was sent on the new one.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from typing import Any, Final

from tests.peers.network_proxy import Proxy, reset
from tests.waiting import HANG_S

_CHUNK: Final = 64 << 10
_SIZE: Final = struct.Struct(">i")
_API_KEY: Final = struct.Struct(">h")


class LateRequests(Proxy):
    """Passes requests on one by one, but for the one that is kept back."""

    def __init__(self, target: tuple[str, int], **options: Any) -> None:
        self._api_key: int | None = None
        self._late: int | None = None
        """The number of the connection whose request is kept back."""
        self._held, self._answered = threading.Event(), threading.Event()
        self._released: asyncio.Event | None = None
        super().__init__(target, **options)

    def hold(self, api_key: int) -> None:
        """Keep the next request of this API back."""
        self._held.clear()
        self._answered.clear()
        self._api_key = api_key

    def release(self) -> None:
        """Send the request that was kept back, and wait for the broker's answer, which no client gets."""
        assert self._held.wait(HANG_S), "no such request came"
        assert self._released is not None
        self._loop.call_soon_threadsafe(self._released.set)
        assert self._answered.wait(HANG_S), "the late request was not answered"

    async def _pump(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, number: int, *, answers: bool
    ) -> None:
        if answers:
            await self._pass_answers_on(source, target, number)
        else:
            await self._pass_requests_on(source, target, number)
        # Each side ends with the other: a client that is reset has no second half.
        raise ConnectionAbortedError

    async def _pass_requests_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, number: int) -> None:
        while frame := await _frame_of(source):
            if _API_KEY.unpack_from(frame, _SIZE.size)[0] == self._api_key:
                self._api_key, self._late, self._released = None, number, asyncio.Event()
                reset(next(client for client, broker in self._pairs if broker is target))
                self._held.set()
                await self._released.wait()
            target.write(frame)
            await target.drain()
            if number == self._late:
                await asyncio.get_running_loop().run_in_executor(None, self._answered.wait, HANG_S)
                return

    async def _pass_answers_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, number: int) -> None:
        while data := await source.read(_CHUNK):
            if number == self._late:
                self._answered.set()
                return
            target.write(data)
            await target.drain()


async def _frame_of(source: asyncio.StreamReader) -> bytes:
    """One request with its size; empty at the end."""
    try:
        size = await source.readexactly(_SIZE.size)
        return size + await source.readexactly(_SIZE.unpack(size)[0])
    except asyncio.IncompleteReadError:
        return b""
