"""Observers of a simulated broker over all its lives: its records, a network tap, and a kill at a response.

A response at which the broker is killed arrives, but nothing that the broker would do next happens.
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
    """Observes a broker's network traffic, in order."""

    def received(self, connection: Connection, frame: Buffer) -> None:
        """A request is about to be handled. The buffer belongs to the node and must not be kept."""

    def sent(self, connection: Connection, data: bytes) -> None:
        """The bytes of one or more responses with size prefixes have left."""

    def disconnected(self, connection: Connection) -> None: ...

    def died(self, *, power_lost: bool) -> None: ...


class NoTap:
    def received(self, connection: Connection, frame: Buffer) -> None: ...

    def sent(self, connection: Connection, data: bytes) -> None: ...

    def disconnected(self, connection: Connection) -> None: ...

    def died(self, *, power_lost: bool) -> None: ...


_KEY_AND_CORRELATION = struct.Struct(">hxxi")
_SIZE_AND_CORRELATION = struct.Struct(">ii")
_SIZE_BYTES = 4


class KilledAtAnswer(ProcessKilled):
    """The process was killed when a response left. The machine's kernel still sends written bytes."""


class ResponseTrigger:
    def __init__(self, api_key: int, killed: Callable[[], object], *, only_calls: bool = False) -> None:
        self.api_key = api_key
        self.only_calls = only_calls
        self.killed = killed
        # (connection, correlation id) of matching requests.
        self._requests: set[tuple[int, int]] = set()

    def received(self, connection: int, frame: bytes | memoryview) -> None:
        api_key, correlation_id = _KEY_AND_CORRELATION.unpack_from(frame)
        if api_key == self.api_key:
            self._requests.add((connection, correlation_id))

    def is_triggered_by(self, connection: int, data: bytes) -> bool:
        return any((connection, correlation_id) in self._requests for correlation_id in _correlation_ids(data))


def _correlation_ids(data: bytes) -> Iterator[int]:
    position = 0
    while position < len(data):
        size, correlation_id = _SIZE_AND_CORRELATION.unpack_from(data, position)
        yield correlation_id
        position += _SIZE_BYTES + size


@dataclass(slots=True)
class BrokerRecords:
    """A broker's reports, audit records and causes of death over all its lives, and its observers."""

    broker_id: int
    reports: list[str] = field(default_factory=list)
    # Records of its audit log.
    audits: list[AuditRecord] = field(default_factory=list)
    # Reasons why it stopped by itself.
    deaths: list[str] = field(default_factory=list)
    tap: WireTap = field(default_factory=NoTap)
    response_trigger: ResponseTrigger | None = None
