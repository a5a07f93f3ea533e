"""Lets faults hit the requests of a running broker: the only module of the package that runs on the broker's loop.

A held request waits like a parked fetch: later requests on its connection wait behind it. It is carried out even if its
client disconnects. Delays are in the broker's time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from oncelog.base.errors import ErrorCode, PeerError
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import DAY_MS
from oncelog.handlers.broker.waits import Steps, UntilReadable
from oncelog.node.kernel.events import DeadlineReached
from oncelog.testing.faults.fault import Fault, Hit, RequestFault
from oncelog.testing.faults.leaderless import ASKING_LEADERS, LeaderlessCluster, LeaderlessPartitions
from oncelog.testing.faults.matching import topics_of, transactional_ids
from oncelog.testing.faults.refusals import put_errors, refuse

if TYPE_CHECKING:
    from oncelog.handlers.api import Api
    from oncelog.handlers.broker.context import Context
    from oncelog.node.node import Node
    from oncelog.node.requests.lazy_apis import Handle
    from oncelog.runtime.server import Server

FOREVER_MS: Final = 10_000 * DAY_MS
"""A delay until the end of its fault."""
# The partition that held requests wait on; no real partition has this name.
_HELD: Final = TopicPartition(TopicName(""), 0)
_MAX_CLIENT_IDS: Final = 10_000


class Interception:
    """Intercepts one broker's requests, across its restarts."""

    def __init__(self, die: Callable[[Fault, Hit], None]) -> None:
        # Kills the broker within an event.
        self._die = die
        self.requests: list[RequestFault] = []
        self.leaderless: dict[Fault, TopicPartition] = {}
        self.cuts: dict[Fault, str | None] = {}
        # Connection id → its client id.
        self._client_ids: dict[int, str | None] = {}

    def intercept(self, node: Node) -> None:
        self._client_ids.clear()
        node.put_around_handlers(self._wrap)

    def wake_held(self, server: Server) -> None:
        # Check all held requests for faults that have ended.
        server.node.partitions.readable_changed(_HELD)
        server.effect_runner.dispatch(DeadlineReached())

    def cut(self, server: Server, fault: Fault) -> None:
        client_id = self.cuts[fault]
        for connection_id, connection in list(server.effect_runner.connections.items()):
            if client_id is None or self._client_ids.get(connection_id) == client_id:
                fault.struck(Hit("", self._client_ids.get(connection_id)))
                connection.abort()

    def _wrap(self, api: Api, handle: Handle) -> Handle:
        return partial(self._handle, api, handle)

    def _handle(self, api: Api, handle: Handle, request: Any, context: Context) -> Steps[Any]:
        if len(self._client_ids) > _MAX_CLIENT_IDS:
            self._client_ids.clear()
        self._client_ids[context.connection_id] = context.client_id
        if self.cuts or self.leaderless or self.requests:
            return self._steps(api, handle, request, context)
        return self._finish(api, request, context, handle(request, context))

    def _steps(self, api: Api, handle: Handle, request: Any, context: Context) -> Steps[Any]:
        for fault, client_id in self.cuts.items():
            if client_id is None or client_id == context.client_id:
                fault.struck(_hit(api, request, context))
                raise PeerError(fault.description)
        refusal = yield from self._strike(api, request, context, after=False)
        if refusal is not None:
            return (yield from refuse(handle, request, context, refusal))
        if api.name in ASKING_LEADERS:
            self._hide_leaders(api, request, context)
        return (yield from self._finish(api, request, context, handle(request, context)))

    def _finish(self, api: Api, request: Any, context: Context, outcome: Steps[Any]) -> Steps[Any]:
        response = yield from outcome
        refusal = yield from self._strike(api, request, context, after=True)
        if refusal is not None and response is not None:
            put_errors(response, refusal)
        return response

    def _strike(self, api: Api, request: Any, context: Context, *, after: bool) -> Steps[ErrorCode | None]:
        """Let every matching fault hit the request at this point. Returns the error to respond with, or None."""
        for rule in list(self.requests):
            if rule.after is not after or not rule.match.fits(api, request, context) or not rule.strikes():
                continue
            fault = rule.fault
            if rule.kill:
                self._die(fault, _hit(api, request, context))
                yield UntilReadable((), _never, context.now_ms + FOREVER_MS)
            fault.struck(_hit(api, request, context))
            if rule.delay_ms is not None:
                until_ms = context.now_ms + rule.delay_ms
                yield UntilReadable((_HELD,), partial(_is_removed, fault), until_ms, ends_with_client=False)
            if rule.drop:
                raise PeerError(fault.description)
            if rule.error is not None:
                return rule.error
        return None

    def _hide_leaders(self, api: Api, request: Any, context: Context) -> None:
        if not self.leaderless:
            return
        hidden = set(self.leaderless.values())
        context.partitions = LeaderlessPartitions(context.partitions, hidden)
        context.cluster = LeaderlessCluster(context.cluster, hidden)
        for fault, partition in self.leaderless.items():
            if partition.topic in topics_of(request, context):
                fault.struck(_hit(api, request, context))


def _never(changed: Sequence[TopicPartition]) -> bool:
    del changed
    return False


def _is_removed(fault: Fault, changed: Sequence[TopicPartition]) -> bool:
    del changed
    return fault.removed


def _hit(api: Api, request: Any, context: Context) -> Hit:
    return Hit(api.name, context.client_id, next(transactional_ids(request)) or None)
