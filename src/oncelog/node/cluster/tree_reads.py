"""Reads of the coordination tree for requests: of nodes that the cluster's image lacks, or of how far it has come."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from oncelog.handlers.broker.waits import ReadNodes
from oncelog.node.kernel.events import NodesRead, Outbox, ReadTree
from oncelog.node.kernel.tasks import Runnable, Task


class TreeReads:
    """The reads under way. One whose answer never comes keeps its request, as long as its connection lives."""

    def __init__(self, runnable: Runnable, outbox: Outbox) -> None:
        self._runnable = runnable
        self._outbox = outbox
        self._waiting: dict[int, Callable[[NodesRead], object]] = {}
        self._tokens = count(1)

    def is_idle(self) -> bool:
        """True while no read is under way."""
        return not self._waiting

    def park(self, task: Task, wait: ReadNodes) -> None:
        """Have the nodes read."""

        def answered(event: NodesRead) -> None:
            nodes = event.nodes
            values = None if nodes is None else {node.path: node.value for node in nodes}
            self._runnable.wake(task, values)

        self._ask(ReadTree(next(self._tokens), wait.paths), answered)

    def read_position(self, answered: Callable[[int | None], object]) -> None:
        """Ask for the position of the tree's last change. ``answered`` gets it later, or None if it cannot be read."""
        asked = ReadTree(next(self._tokens), ())
        self._ask(asked, lambda event: answered(None if event.nodes is None else event.position))

    def _ask(self, effect: ReadTree, answered: Callable[[NodesRead], object]) -> None:
        self._waiting[effect.token] = answered
        self._outbox.effects.append(effect)

    def read(self, event: NodesRead) -> None:
        """Hand what was read to whoever waits for it."""
        answered = self._waiting.pop(event.token, None)
        if answered is not None:
            answered(event)
