"""Taps on a broker's network: whole requests and responses, each decoded once for all rules, or not if no rule reads
it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from oncelog.base.errors import PeerError
from oncelog.base.ids import BrokerId
from oncelog.handlers.broker.broker_clients import broker_client_id
from oncelog.node.brokers.broker_links import LinkPurpose
from oncelog.sim.checkers.wire.exchange import ALONE, name_of
from oncelog.sim.checkers.wire.observer import WireObserver
from oncelog.sim.virtual.network.conditions import PRODUCE
from oncelog.sim.virtual.network.connection import Connection
from oncelog.wire.apis import WIRE_APIS
from oncelog.wire.chunks import Buffer
from oncelog.wire.header import RequestHeader, decode_request_header, decode_response_header
from oncelog.wire.messages.fetch import FetchRequest
from oncelog.wire.messages.list_offsets import ListOffsetsRequest

JOIN_GROUP: Final = 11
SYNC_GROUP: Final = 14
_SIZE_BYTES: Final = 4
# The longest wait for a response without faults; clients wait a little longer.
LONGEST_WAIT_MS: Final = 2_500
_MODULES: Final = {api.key: api.module for api in WIRE_APIS}
_CLASSES: dict[int, Any] = {}
# Requests whose response depends on other clients, and so may take any time.
_MAY_WAIT: Final = frozenset({JOIN_GROUP, SYNC_GROUP})
_FETCHERS: Final = frozenset(broker_client_id(BrokerId(broker), LinkPurpose.FETCH.value) for broker in range(1, 10))


class DecodingTap:
    """Calls ``on_violation`` with the first instance of each violated rule."""

    def __init__(
        self,
        observer: WireObserver,
        now_ms: Callable[[], int],
        on_violation: Callable[[str], None],
        broker_id: int = ALONE,
    ) -> None:
        self.requests = 0
        self._broker_id = broker_id
        # The time of the last repair: every later request must be answered soon.
        self.calm_since_ms: int | None = None
        self._observer = observer
        self._now_ms = now_ms
        self._on_violation = on_violation
        # Open requests by connection and correlation id: (header, request or its class, time).
        self._open_requests: dict[int, dict[int, tuple[RequestHeader, Any, int]]] = {}

    def received(self, connection: Connection, frame: Buffer) -> None:
        self.requests += 1
        try:
            header, position = decode_request_header(frame)
            request = request_class(header.api_key)
            if self._observer.reads(request) and not self._is_of_fetcher(header):
                request = request.decode(memoryview(bytes(frame))[position:], header.api_version)
                if self._observer.is_cluster and _is_of_replica(request):
                    request = type(request)
        except (PeerError, KeyError):
            return  # the broker rejects it
        now_ms = self._now_ms()
        self._open_requests.setdefault(connection.number, {})[header.correlation_id] = header, request, now_ms
        self._observer.received(
            connection.number, header.correlation_id, header.api_version, request, now_ms, self._broker_id
        )
        self._report_violations()

    def _is_of_fetcher(self, header: RequestHeader) -> bool:
        # True for fetches over broker links, by client id. Most requests in a cluster are such.
        return self._observer.is_cluster and header.api_key == FetchRequest.API_KEY and header.client_id in _FETCHERS

    def sent(self, connection: Connection, data: bytes) -> None:
        rest = memoryview(data)
        while rest:  # later responses waited for this one, and leave with it
            end = _SIZE_BYTES + int.from_bytes(rest[:_SIZE_BYTES], "big")
            self._answered(connection, rest[_SIZE_BYTES:end])
            rest = rest[end:]

    def _answered(self, connection: Connection, frame: memoryview) -> None:
        correlation_id = int.from_bytes(frame[:4], "big")
        open_request = self._open_requests.get(connection.number, {}).pop(correlation_id, None)
        if open_request is None:
            return
        header, request, _ = open_request
        response = request.response_class()
        if not isinstance(request, type):
            _, position = decode_response_header(frame, header.api_key, header.api_version)
            response = response.decode(frame[position:], header.api_version)
        self._observer.answered(connection.number, correlation_id, response, self._now_ms())
        self._report_violations()

    def disconnected(self, connection: Connection) -> None:
        self._observer.disconnected(connection.number)
        for header, request, requested_ms in self._open_requests.pop(connection.number, {}).values():
            waited_ms = self._now_ms() - requested_ms
            is_calm = self.calm_since_ms is not None and requested_ms >= self.calm_since_ms
            if is_calm and waited_ms >= LONGEST_WAIT_MS and not _may_wait(header, request):
                detail = f"{name_of(request)} of {connection.client} waited {waited_ms} ms in calm times"
                self._on_violation(f"L5 request without an answer: {detail}")

    def died(self, *, power_lost: bool) -> None:
        if self._observer.is_cluster:
            self._observer.broker_died(self._now_ms(), self._broker_id, self._open_requests)
        else:
            self._observer.restarted(self._now_ms(), power_lost=power_lost)
        self._open_requests.clear()
        self._report_violations()

    def _report_violations(self) -> None:
        for rule, instances in self._observer.violations.items():
            self._on_violation(f"{rule}: {instances[0]}")


def _is_of_replica(request: Any) -> bool:
    # True for requests of followers, which may read above the high watermark.
    if isinstance(request, FetchRequest):
        state = request.replica_state
        return (request.replica_id if state is None else state.replica_id) >= 0
    return isinstance(request, ListOffsetsRequest) and request.replica_id >= 0


def _may_wait(header: RequestHeader, request: Any) -> bool:
    # True for requests that may stay without a response: they depend on other clients, or want none.
    return header.api_key in _MAY_WAIT or (header.api_key == PRODUCE and request.acks == 0)


def request_class(api_key: int) -> Any:
    cached_class = _CLASSES.get(api_key)
    if cached_class is None:
        name = _MODULES[api_key]
        module = import_module(f"oncelog.wire.messages.{name}")
        class_name = "".join(part.capitalize() for part in name.split("_")) + "Request"
        cached_class = _CLASSES[api_key] = getattr(module, class_name)
    return cached_class
