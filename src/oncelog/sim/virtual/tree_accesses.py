"""A broker process's accesses to the coordination tree: a node's effects about metadata, one after another.

The next access sets out when the tree has carried out the one before it, or that was given up. What the path does to
them is in ``tree_session``; here its outcome becomes the event that the node is told of.
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
    """Carries a node's accesses to the tree, in order. ``dispatch`` hands events to the node, unless the process is
    dead."""

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
        self._waiting: deque[TreeAccess] = deque()
        """Accesses that the tree has not carried out; the first of them is under way."""
        session.on_lost = self._session_lost

    def follow(self, after: int) -> None:
        """Hand every committed change after a position to the node."""

        def changed(change: CommittedChange) -> None:
            self._dispatch(MetadataChanged(change.position, change.token, change.changes))

        self._session.follow(after, changed)

    def add(self, effect: TreeAccess) -> None:
        """Carry out an effect after those that were added before."""
        self._waiting.append(effect)
        if len(self._waiting) == 1:
            self._ask()

    def _ask(self) -> None:
        effect = self._waiting[0]
        renews = isinstance(effect, LoadMetadata) and effect.rejoin
        self._session.ask(partial(self._at_tree, effect), partial(self._answered, effect), renews=renews)

    def _at_tree(self, effect: TreeAccess) -> TreeAnswer:
        """Carry out an access; also one that was given up, and reaches the tree after all."""
        self._ask_next(effect)
        coordination = self._session.reads
        if isinstance(effect, WriteMetadata):
            return tree_access.write(coordination, effect)
        if isinstance(effect, SettleMetadata):
            return tree_access.settle(coordination, effect)
        if isinstance(effect, ReadTree):
            return tree_access.read_nodes(coordination, effect)
        return tree_access.load(coordination, effect, self._registration, self._now_ms())

    def _ask_next(self, ended: TreeAccess) -> None:
        """An access is carried out or given up: the next one sets out, if it has not yet."""
        if self._waiting and self._waiting[0] is ended:
            self._waiting.popleft()
            if self._waiting:
                self._ask()

    def _answered(self, effect: TreeAccess, answer: TreeAnswer | NoAnswer) -> None:
        self._ask_next(effect)
        event = _unanswered(effect, answer) if isinstance(answer, NoAnswer) else answer
        self._dispatch(event)
        if isinstance(event, MetadataLoaded) and event.nodes is not None:
            self.follow(event.position)

    def _session_lost(self) -> None:
        """A heartbeat may have found out: then the node has no commit to be told of."""
        self._dispatch(tree_access.SESSION_LOST)


def _unanswered(effect: TreeAccess, reason: NoAnswer) -> TreeAnswer:
    if isinstance(effect, ReadTree):
        return NodesRead(effect.token, None)
    if isinstance(effect, LoadMetadata):
        return MetadataLoaded(0, None)
    return MetadataWritten(effect.token, _OUTCOMES[reason])
