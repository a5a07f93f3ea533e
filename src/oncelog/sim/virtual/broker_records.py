"""Observers of a simulated broker over all its lives: its records, a tap on its network, and a kill at an answer.

A kill at an answer strikes in the instant in which the answer leaves: it is on the network and arrives; nothing that
the broker meant to do after it happens.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from oncelog.handlers.broker.audit import AuditRecord
from oncelog.sim.virtual.files import ProcessKilled
from oncelog.sim.virtual.network.connection import Connection
from oncelog.wire.chunks import Buffer


class WireTap(Protocol):
    """Is told what crosses a broker's network, in order."""

    def received(self, connection: Connection, frame: Buffer) -> None:
        """A request is handed to the node next; the buffer is the node's and must not be kept."""

    def sent(self, connection: Connection, data: bytes) -> None:
        """The bytes of one response or several, size prefixes included, have left."""

    def disconnected(self, connection: Connection) -> None:
        """The broker knows that the connection is gone."""

    def died(self, *, power_lost: bool) -> None:
        """The broker's process is gone, and all its connections."""


class NoTap:
    """No observer."""

    def received(self, connection: Connection, frame: Buffer) -> None: ...

    def sent(self, connection: Connection, data: bytes) -> None: ...

    def disconnected(self, connection: Connection) -> None: ...

    def died(self, *, power_lost: bool) -> None: ...


_KEY_AND_CORRELATION = struct.Struct(">hxxi")
_SIZE_AND_CORRELATION = struct.Struct(">ii")
_SIZE_BYTES = 4


class KilledAtAnswer(ProcessKilled):
    """The process was killed when an answer left; the kernel of its machine still sends what was written."""


class AnswerKill:
    """Armed for one answer to ``api_key``; ``killed`` is called when it has struck. ``spares``: nobody is killed, and
    ``killed`` is called all the same."""

    def __init__(self, api_key: int, killed: Callable[[], object], *, spares: bool = False) -> None:
        self.api_key = api_key
        self.spares = spares
        self.killed = killed
        self._asked: set[tuple[int, int]] = set()
        """(connection, correlation id) of requests of this kind."""

    def received(self, connection: int, frame: bytes | memoryview) -> None:
        api_key, correlation_id = _KEY_AND_CORRELATION.unpack_from(frame)
        if api_key == self.api_key:
            self._asked.add((connection, correlation_id))

    def strikes(self, connection: int, data: bytes) -> bool:
        """True when one of the responses in ``data``, which leave now, is the answer that was waited for."""
        return any((connection, correlation_id) in self._asked for correlation_id in _correlation_ids(data))


def _correlation_ids(data: bytes) -> Iterator[int]:
    position = 0
    while position < len(data):
        size, correlation_id = _SIZE_AND_CORRELATION.unpack_from(data, position)
        yield correlation_id
        position += _SIZE_BYTES + size


@dataclass(slots=True)
class BrokerRecords:
    """Reports, audit entries and causes of death of a broker over all its lives, and its observers."""

    broker_id: int
    reports: list[str] = field(default_factory=list)
    audits: list[AuditRecord] = field(default_factory=list)
    """Entries of its audit log."""
    deaths: list[str] = field(default_factory=list)
    """Why it stopped by itself, each time."""
    tap: WireTap = field(default_factory=NoTap)
    answer_kill: AnswerKill | None = None
