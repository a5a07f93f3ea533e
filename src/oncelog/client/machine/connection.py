"""One connection to one broker: requests out with rising correlation ids, responses in, in the same order.

A correlation id out of order is a PeerError, because nothing on the connection can be trusted after it. The caller
decodes responses, so that the next request can be sent first. A request without a response (Produce, acks=0) takes a
correlation id and expects nothing.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, TypeVar

from oncelog.base.errors import ErrorCode, PeerError
from oncelog.base.invariant import invariant
from oncelog.base.units import INT32_MAX
from oncelog.client.errors import RebootstrapRequired, UnsupportedRequest
from oncelog.client.machine.receive_buffer import READ_AHEAD_BYTES, ReceiveBuffer
from oncelog.client.machine.versions import Versions, downgraded
from oncelog.wire import message as messages
from oncelog.wire.chunks import Buffer, Chunk
from oncelog.wire.header import RequestHeader, decode_response_header, encode_request
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

R = TypeVar("R", bound=messages.Response)

SOFTWARE_NAME: Final = "oncelog"
_EXPECTED_BROKER_SINCE: Final = 5


class ExpectedBroker(NamedTuple):
    """See KIP-1242."""

    cluster_id: str
    broker_id: int

    def __str__(self) -> str:
        return f"broker {self.broker_id} of cluster {self.cluster_id}"


class Phase(Enum):
    # Nothing may be sent. ``start`` leads to NEGOTIATING, with assumed versions to READY.
    NEW = "new"
    # ApiVersions is out, nothing else may be sent. UNSUPPORTED_VERSION: it is asked again in a lower version.
    NEGOTIATING = "negotiating"
    # Any request may be sent.
    READY = "ready"
    # After ``close``, or a PeerError in any phase.
    CLOSED = "closed"


_NEXT: Final[dict[tuple[Phase, str], Phase]] = {
    (Phase.NEW, "started"): Phase.NEGOTIATING,
    (Phase.NEW, "agreed"): Phase.READY,
    (Phase.NEGOTIATING, "refused"): Phase.NEGOTIATING,
    (Phase.NEGOTIATING, "agreed"): Phase.READY,
    (Phase.NEW, "closed"): Phase.CLOSED,
    (Phase.NEGOTIATING, "closed"): Phase.CLOSED,
    (Phase.READY, "closed"): Phase.CLOSED,
    (Phase.CLOSED, "closed"): Phase.CLOSED,
}


@dataclass(frozen=True, slots=True)
class Expected(Generic[R]):
    """A sent request that awaits its response."""

    correlation_id: int
    api_key: int
    version: int
    response_class: type[R]


@dataclass(frozen=True, slots=True)
class Response(Generic[R]):
    """A response as received; ``decode`` parses it."""

    request: Expected[R]
    body: memoryview

    @property
    def correlation_id(self) -> int:
        return self.request.correlation_id

    def decode(self) -> R:
        """The response message. Raises PeerError when the bytes are not one."""
        return self.request.response_class.decode(self.body, self.request.version)


class Connection:
    """The state machine of one connection. Chunks that its methods return have to be written in order."""

    def __init__(
        self,
        client_id: str,
        *,
        max_response_bytes: int,
        read_ahead_bytes: int = READ_AHEAD_BYTES,
        assumed: Versions | None = None,
        expected_broker: ExpectedBroker | None = None,
    ) -> None:
        """``assumed`` are the versions of a broker without ApiVersions, which is not asked for them."""
        self.phase = Phase.NEW
        self.versions = assumed or Versions({})
        self._is_assumed = assumed is not None
        self._client_id = client_id
        self._expected_broker = expected_broker
        self._buffer = ReceiveBuffer(max_response_bytes, read_ahead_bytes)
        self._expected: deque[Expected[Any]] = deque()
        self._next_correlation_id = 0
        self._asking = ApiVersionsRequest.MAX_VERSION
        self.buffer = self._buffer.buffer

    @property
    def in_flight(self) -> int:
        return len(self._expected)

    @property
    def missing(self) -> int:
        return self._buffer.missing

    def start(self) -> list[Chunk]:
        """Request the broker's versions, unless assumed."""
        if self._is_assumed:
            self._step("agreed")
            return []
        self._step("started")
        return self._ask_versions()

    def send(
        self, message: messages.Request[Any], version: int | None = None, *, answered: bool = True
    ) -> tuple[int, list[Chunk]]:
        """Encode a request. Returns its correlation id and the chunks to write. Raises UnsupportedRequest."""
        invariant(self.phase is Phase.READY, "a request before the versions are agreed", phase=self.phase)
        # The caller may need an older version for its meaning.
        chosen = self.versions.choose(message) if version is None else version
        return self._encode(message, chosen, answered)

    def received(self, count: int) -> list[Chunk]:
        """Process ``count`` bytes that arrived in ``buffer()``. Returns handshake chunks to send, usually none.

        Raises PeerError, RebootstrapRequired, and closes the connection.
        """
        try:
            self._buffer.received(count)
            return self._negotiate()
        except (PeerError, RebootstrapRequired):
            self.close()
            raise

    def feed(self, data: Buffer) -> list[Chunk]:
        """Receive ``data`` from memory; otherwise like ``received``."""
        try:
            self._buffer.feed(data)
            return self._negotiate()
        except (PeerError, RebootstrapRequired):
            self.close()
            raise

    def next_response(self) -> Response[Any] | None:
        """The next response in order, None when it has not arrived. Raises PeerError."""
        if self.phase is not Phase.READY:
            return None
        try:
            return self._next_response()
        except PeerError:
            self.close()
            raise

    def broker_check(self) -> ApiVersionsRequest | None:
        # A broker compares nothing before a login (KIP-1242): this request repeats the question after it.
        if self._expected_broker is None or not self.versions.supports(ApiVersionsRequest, _EXPECTED_BROKER_SINCE):
            return None
        return _versions_request(self._expected_broker)

    def check_broker(self, answer: ApiVersionsResponse) -> None:
        if answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and self._expected_broker is not None:
            raise RebootstrapRequired(
                f"{self._expected_broker} is no longer at its address: the client bootstraps again"
            )

    def keep(self, most_bytes: int) -> None:
        """Reuse buffers of large frames up to this size each."""
        self._buffer.most_kept_bytes = most_bytes

    def limit(self, max_response_bytes: int) -> None:
        """Accept responses up to this size: the limit is low until the broker is authenticated."""
        self._buffer.max_frame_bytes = max_response_bytes

    def close(self) -> None:
        """Enter ``CLOSED``; requests in flight get no response."""
        self._step("closed")
        self._expected.clear()

    def _step(self, event: str) -> None:
        after = _NEXT.get((self.phase, event))
        invariant(after is not None, "a step the connection's table lacks", phase=self.phase, event=event)
        self.phase = after or self.phase

    def _ask_versions(self) -> list[Chunk]:
        expected = self._expected_broker if self._asking >= _EXPECTED_BROKER_SINCE else None
        return self._encode(_versions_request(expected), self._asking, answered=True)[1]

    def _encode(self, message: messages.Request[Any], version: int, answered: bool) -> tuple[int, list[Chunk]]:
        correlation_id = self._next_correlation_id
        header = RequestHeader(message.API_KEY, version, correlation_id, self._client_id)
        try:
            chunks = encode_request(header, message)
        except (ValueError, struct.error) as error:
            name = type(message).__name__
            raise UnsupportedRequest(
                f"{name}: version {version}, which the broker has, cannot express the request: {error}"
            ) from None
        # Correlation ids are 32-bit.
        self._next_correlation_id = 0 if correlation_id == INT32_MAX else correlation_id + 1
        if answered:
            self._expected.append(Expected(correlation_id, message.API_KEY, version, message.response_class()))
        return correlation_id, list(chunks)

    def _next_response(self) -> Response[Any] | None:
        frame = self._buffer.next()
        if frame is None:
            return None
        if not self._expected:
            raise PeerError("the broker sent a response without a request")
        expected = self._expected.popleft()
        correlation_id, position = decode_response_header(frame, expected.api_key, expected.version)
        if correlation_id != expected.correlation_id:
            raise PeerError(f"response {correlation_id} came where {expected.correlation_id} was expected")
        return Response(expected, frame[position:])

    def _negotiate(self) -> list[Chunk]:
        if self.phase is not Phase.NEGOTIATING:
            return []
        response = self._next_response()
        if response is None:
            return []
        answer = _decode_versions(response)
        self.check_broker(answer)
        if answer.error_code != ErrorCode.NONE:
            self._asking = downgraded(answer, self._asking)
            self._step("refused")
            return self._ask_versions()
        self.versions = Versions.of(answer)
        self._step("agreed")
        return []


def _versions_request(expected: ExpectedBroker | None) -> ApiVersionsRequest:
    from oncelog import __version__

    message = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
    if expected is not None:
        message.cluster_id, message.node_id = expected
    return message


def _decode_versions(response: Response[Any]) -> ApiVersionsResponse:
    """The response in the requested format, or in version 0 if it begins with UNSUPPORTED_VERSION."""
    invariant(response.request.api_key == ApiVersionsRequest.API_KEY, "something else was asked before the versions")
    if response.body[:2] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big"):
        return ApiVersionsResponse.decode(response.body, 0)
    return ApiVersionsResponse.decode(response.body, response.request.version)
