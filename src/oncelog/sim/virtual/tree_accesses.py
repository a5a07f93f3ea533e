"""A broker process's accesses to the coordination tree: the node's metadata effects, one after another.

An access is sent when the tree has executed the previous one, or that was given up. ``tree_session`` simulates the
path.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from oncelog.base.tree import CommitOutcome
from oncelog.core.controller.brokers.registration import Registration
from oncelog.node.cluster import tree_access
from oncelog.node.kernel.events import (
    LoadMetadata,
    MetadataChanged,
    MetadataLoaded,
    MetadataWritten,
    NodesRead,
    ReadTree,
    SettleMetadata,
    WriteMetadata,
)
from oncelog.ports import CommittedChange
from oncelog.sim.virtual.tree_session import NoAnswer, TreeSession

TreeAccess = WriteMetadata | SettleMetadata | LoadMetadata | ReadTree
TreeAnswer = MetadataWritten | MetadataLoaded | NodesRead
TreeEvent = MetadataChanged | TreeAnswer
_OUTCOMES: Final = {NoAnswer.UNKNOWN: CommitOutcome.UNKNOWN, NoAnswer.SESSION_LOST: CommitOutcome.SESSION_LOST}


class TreeAccesses:
    """Sends a node's accesses to the tree, in order. ``dispatch`` passes events to the node unless the
    process is dead.
    """

    def __init__(
        self,
        session: TreeSession,
        registration: Registration,
        now_ms: Callable[[], int],
        dispatch: Callable[[TreeEvent], None],
    ) -> None:
        self._session = session
        self._registration = registration
        self._now_ms = now_ms
        self._dispatch = dispatch
        # Accesses that the tree has not executed; the first is in flight.
        self._queue: deque[TreeAccess] = deque()
        session.on_lost = self._session_lost

    def follow(self, after: int) -> None:
        """Pass every committed change after a position to the node."""

        def changed(change: CommittedChange) -> None:
            self._dispatch(MetadataChanged(change.position, change.token, change.changes))

        self._session.follow(after, changed)

    def add(self, effect: TreeAccess) -> None:
        self._queue.append(effect)
        if len(self._queue) == 1:
            self._send_first()

    def _send_first(self) -> None:
        effect = self._queue[0]
        renews = isinstance(effect, LoadMetadata) and effect.rejoin
        self._session.ask(partial(self._execute, effect), partial(self._answered, effect), renews=renews)

    def _execute(self, effect: TreeAccess) -> TreeAnswer:
        # Execute an access at the tree, even one that was given up and still arrives.
        self._complete(effect)
        coordination = self._session.reads
        if isinstance(effect, WriteMetadata):
            return tree_access.write(coordination, effect)
        if isinstance(effect, SettleMetadata):
            return tree_access.settle(coordination, effect)
        if isinstance(effect, ReadTree):
            return tree_access.read_nodes(coordination, effect)
        return tree_access.load(coordination, effect, self._registration, self._now_ms())

    def _complete(self, ended: TreeAccess) -> None:
        # An access was executed or given up: send the next one, unless it was already sent.
        if self._queue and self._queue[0] is ended:
            self._queue.popleft()
            if self._queue:
                self._send_first()

    def _answered(self, effect: TreeAccess, result: TreeAnswer | NoAnswer) -> None:
        self._complete(effect)
        event = _unanswered(effect, result) if isinstance(result, NoAnswer) else result
        self._dispatch(event)
        if isinstance(event, MetadataLoaded) and event.nodes is not None:
            self.follow(event.position)

    def _session_lost(self) -> None:
        # If a heartbeat found out, no commit of the node reports it.
        self._dispatch(tree_access.SESSION_LOST)


def _unanswered(effect: TreeAccess, reason: NoAnswer) -> TreeAnswer:
    if isinstance(effect, ReadTree):
        return NodesRead(effect.token, None)
    if isinstance(effect, LoadMetadata):
        return MetadataLoaded(0, None)
    return MetadataWritten(effect.token, _OUTCOMES[reason])
