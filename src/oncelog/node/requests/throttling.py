"""Applies quotas to responses: counts each request, and makes its client wait if it is over a quota (KIP-13, 124, 219,
599).

A response leaves at once and names the throttle time, the longest of all exceeded quotas; until that has passed,
nothing more of the connection is decided. All versions are treated alike: before 2.0 Apache Kafka delayed the responses
themselves, so older clients merely wait once more.

Logins and allowed requests between brokers are not counted. A Produce without a response (acks=0) counts its bytes but
not its time. The runtime measured the time for the connection's earlier requests, since the node has no clock: a client
waits one request later than in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.node.cluster.client_quotas import ClientQuotas, user_of
from oncelog.node.kernel.events import Outbox, Pause

if TYPE_CHECKING:
    from oncelog.core.quotas.quotas import MutationQuota, RateQuota
    from oncelog.handlers.broker.context import Context
    from oncelog.node.kernel.deadlines import Deadlines
    from oncelog.node.requests.connections import Connection
    from oncelog.wire.message import Message

_PRODUCE: Final = 0
# Fetch and ShareFetch, counted by their handlers: a throttled Fetch returns no records.
_FETCHES: Final = frozenset({1, 78})
_ADD_PARTITIONS_TO_TXN: Final = 24
_BROKERS_ADD_SINCE: Final = 4
# SaslHandshake, WriteTxnMarkers, SaslAuthenticate.
_NOT_COUNTED: Final = frozenset({17, 27, 36})


class Throttling:
    def __init__(self, quotas: ClientQuotas) -> None:
        self.quotas = quotas

    def answered(self, api_key: int, context: Context, response: Message | None) -> int:
        """Count a request; sets the throttle time in its response and returns it in ms, 0 for none."""
        if api_key in _FETCHES:
            return int(getattr(response, "throttle_time_ms", 0))
        if _is_uncounted(api_key, context) and not _is_denied(response):
            return 0
        throttle_ms, quota = self._throttle(api_key, context, response)
        if throttle_ms:
            quota.throttles.add(throttle_ms)
            if response is not None and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle_ms
        return throttle_ms

    def _throttle(
        self, api_key: int, context: Context, response: Message | None
    ) -> tuple[int, RateQuota | MutationQuota]:
        quotas = self.quotas
        throttle_ms = quotas.took(context, context.spent_ns) if response is not None else 0
        quota: RateQuota | MutationQuota = quotas.request
        if api_key == _PRODUCE:
            user = user_of(context.principal)
            other_ms = quotas.produce.record(user, context.client_id, context.request_bytes, context.now_ms)
            other: RateQuota | MutationQuota = quotas.produce
        else:  # set by the handlers that create or delete partitions
            other_ms, other = int(getattr(response, "throttle_time_ms", 0)), quotas.mutations
        return (other_ms, other) if other_ms > throttle_ms else (throttle_ms, quota)


class Mutes:
    """Connections that are throttled, including those closed meanwhile; requests decided before are answered.
    ``unmuted(connection)`` is called when the time has passed."""

    def __init__(self, deadlines: Deadlines, outbox: Outbox, unmuted: Callable[[Connection], None]) -> None:
        self._deadlines = deadlines
        self._outbox = outbox
        self._unmuted = unmuted
        self._connections: dict[Connection, None] = {}
        self.have_ended = False
        """True once the broker is stopping: no connection is muted again."""

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._connections)

    def mute(self, connection: Connection, time_ms: int) -> None:
        """Mute a connection for ``time_ms``, or until a later end set before."""
        if self.have_ended or not (connection.open or connection.backlog):
            return
        self._connections[connection] = None
        connection.mute(self._deadlines.now_ms + time_ms)
        if connection.open and not connection.paused:
            connection.paused = True
            self._outbox.effects.append(Pause(connection.id))
        self._deadlines.at(connection.muted_until_ms, partial(self._unmute, connection))

    def end(self) -> None:
        """Unmute all connections: the broker is stopping."""
        self.have_ended = True
        for connection in list(self._connections):
            connection.muted_until_ms = self._deadlines.now_ms
            self._unmute(connection, self._deadlines.now_ms)

    def _unmute(self, connection: Connection, now_ms: int) -> None:
        if connection.muting is None or now_ms < connection.muted_until_ms:
            return
        del self._connections[connection]
        connection.unmute()
        self._unmuted(connection)


def _is_denied(response: Message | None) -> bool:
    """True if a request reserved for brokers was denied: its sender is an ordinary client, whose time counts."""
    if getattr(response, "error_code", 0) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return True
    codes = (
        partition.error_code
        for marker in getattr(response, "markers", ())
        for topic in marker.topics
        for partition in topic.partitions
    )
    return next(codes, 0) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _is_uncounted(api_key: int, context: Context) -> bool:
    """True for requests that only brokers send, and for logins."""
    return api_key in _NOT_COUNTED or (api_key == _ADD_PARTITIONS_TO_TXN and context.version >= _BROKERS_ADD_SINCE)
