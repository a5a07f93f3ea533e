"""The client's end of a simulated connection: an asyncio Transport over :class:`Connection`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Protocol

from oncelog.sim.virtual.kernel import Kernel
from oncelog.sim.virtual.network.connection import Connection


class Carrier(Protocol):
    """The network as seen by a transport."""

    kernel: Kernel
    # The simulation has ended: all connections count as closed.
    over: bool

    def request_written(self, connection: Connection, frame: bytes) -> None: ...


class ClientTransport(asyncio.Transport):
    def __init__(self, carrier: Carrier, connection: Connection, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._carrier = carrier
        self._connection = connection
        self._protocol = protocol
        self._closing = False
        self._lost = False
        self._paused: list[bytes | None] | None = None
        self.dead = False

    def lose(self, error: Exception | None) -> None:
        self._closing = True
        if not self._lost:
            self._lost = True
            self._protocol.connection_lost(error)

    def arrived(self, data: bytes | None) -> None:
        """Bytes from the server, or (None) the end of its stream."""
        if self._lost or self.dead:
            return
        if self._paused is not None:
            self._paused.append(data)
        elif data is not None:
            self._protocol.data_received(data)
        elif not self._protocol.eof_received():
            self.close()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing and not self.dead:
            self._connection.up.put(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        frame = b"".join(list_of_data)
        self.write(frame)
        if not self.dead:
            self._carrier.request_written(self._connection, frame)

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self.dead:
                self._connection.up.put(None)
            self._carrier.kernel.soon(self.lose, None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._closing or self._carrier.over

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def pause_reading(self) -> None:
        if self._paused is None:
            self._paused = []

    def resume_reading(self) -> None:
        held_back, self._paused = self._paused, None
        for data in held_back or ():
            self.arrived(data)

    def is_reading(self) -> bool:
        return self._paused is None

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0
