"""What an observer of a broker's network sees: whole requests in, whole responses out, decoded once for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Protocol

from oncelog.base.errors import PeerError
from oncelog.sim.network import Connection
from oncelog.wire.apis import WIRE_APIS
from oncelog.wire.chunks import Buffer
from oncelog.wire.header import RequestHeader, decode_request_header, decode_response_header

_MODULES: Final = {api.key: api.module for api in WIRE_APIS}
_CLASSES: dict[int, Any] = {}


class Watcher(Protocol):
    """Is told what crosses a broker's network."""

    def request(self, connection: Connection, frame: Buffer) -> None:
        """A request was handed to the node; the buffer is the node's and must not be kept."""

    def response(self, connection: Connection, chunks: Sequence[Any]) -> None:
        """The node has answered; file ranges are not read yet."""

    def sent(self, connection: Connection, data: bytes) -> None:
        """The bytes of one response, size prefix included, have left."""


class NobodyWatches:
    """No observer."""

    def request(self, connection: Connection, frame: Buffer) -> None: ...

    def response(self, connection: Connection, chunks: Sequence[Any]) -> None: ...

    def sent(self, connection: Connection, data: bytes) -> None: ...


@dataclass(slots=True)
class Exchange:
    """One request and its response as they crossed the network."""

    connection: int
    client: str
    header: RequestHeader
    request: Any
    asked_us: int
    response: Any = None
    answered_us: int = -1


class DecodingWatcher:
    """Decodes every exchange and tells ``on_request`` when it was received and ``on_exchange`` when it was answered."""

    def __init__(
        self,
        now_us: Callable[[], int],
        on_exchange: Callable[[Exchange], None],
        on_request: Callable[[Exchange], None] | None = None,
    ) -> None:
        self.requests = 0
        self._now_us = now_us
        self._on_exchange = on_exchange
        self._on_request = on_request
        self._asked: dict[tuple[int, int], Exchange] = {}

    def request(self, connection: Connection, frame: Buffer) -> None:
        self.requests += 1
        try:
            header, position = decode_request_header(frame)
            message = request_class(header.api_key).decode(
                memoryview(bytes(memoryview(frame)[position:])), header.api_version
            )
        except (PeerError, KeyError):
            return  # the broker answers that in its own way
        exchange = Exchange(connection.number, connection.client, header, message, self._now_us())
        self._asked[connection.number, header.correlation_id] = exchange
        if self._on_request is not None:
            self._on_request(exchange)

    def response(self, connection: Connection, chunks: Sequence[Any]) -> None:
        """Only what has left is looked at."""

    def sent(self, connection: Connection, data: bytes) -> None:
        frame = memoryview(data)[4:]
        exchange = self._asked.pop((connection.number, int.from_bytes(frame[:4], "big")), None)
        if exchange is None:
            return
        header = exchange.header
        _, position = decode_response_header(frame, header.api_key, header.api_version)
        exchange.response = exchange.request.response_class().decode(frame[position:], header.api_version)
        exchange.answered_us = self._now_us()
        self._on_exchange(exchange)


def request_class(api_key: int) -> Any:
    """The class of a request. Raises KeyError for a key that the wire does not have."""
    known = _CLASSES.get(api_key)
    if known is None:
        name = _MODULES[api_key]
        module = import_module(f"oncelog.wire.messages.{name}")
        wanted = "".join(part.capitalize() for part in name.split("_")) + "Request"
        known = _CLASSES[api_key] = getattr(module, wanted)
    return known
