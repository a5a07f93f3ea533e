"""Reads of the coordination tree for requests: of nodes missing from the cluster's image, or of the tree's position."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from oncelog.handlers.broker.waits import ReadNodes
from oncelog.node.kernel.events import NodesRead, Outbox, ReadTree
from oncelog.node.kernel.tasks import Runnable, Task


class TreeReads:
    """The reads in flight. A read that is never answered keeps its request until the client disconnects."""

    def __init__(self, runnable: Runnable, outbox: Outbox) -> None:
        self.position_at_once: Callable[[], int | None] = lambda: None
        """Reads the tree's position without waiting; None where that is impossible. Set by the broker's host."""
        self._runnable = runnable
        self._outbox = outbox
        self._waiting: dict[int, Callable[[NodesRead], object]] = {}
        self._tokens = count(1)

    def is_idle(self) -> bool:
        return not self._waiting

    def park(self, task: Task, wait: ReadNodes) -> None:
        """The task wakes with the values by path, or None if they cannot be read."""

        def on_answer(event: NodesRead) -> None:
            nodes = event.nodes
            values = None if nodes is None else {node.path: node.value for node in nodes}
            self._runnable.wake(task, values)

        self._submit(ReadTree(next(self._tokens), wait.paths), on_answer)

    def read_position(self, on_answer: Callable[[int | None], object]) -> None:
        """Read the position of the tree's last change. ``on_answer`` is called later; None: unreadable."""
        effect = ReadTree(next(self._tokens), ())
        self._submit(effect, lambda event: on_answer(None if event.nodes is None else event.position))

    def _submit(self, effect: ReadTree, on_answer: Callable[[NodesRead], object]) -> None:
        self._waiting[effect.token] = on_answer
        self._outbox.effects.append(effect)

    def read(self, event: NodesRead) -> None:
        on_answer = self._waiting.pop(event.token, None)
        if on_answer is not None:
            on_answer(event)
