"""Reads of the coordination tree for requests: of nodes that the cluster's image lacks, or may have too late."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count

from oncelog.handlers.support.waits import ReadNodes
from oncelog.node.events import NodesRead, ReadTree
from oncelog.node.outbox import Outbox
from oncelog.node.requests.tasks import Runnable, Task

Values = Mapping[str, bytes]
"""Values of the nodes that exist, by path."""


class TreeReads:
    """The reads under way. One whose answer never comes keeps its request, as long as its connection lives."""

    def __init__(self, runnable: Runnable, outbox: Outbox) -> None:
        self._runnable = runnable
        self._outbox = outbox
        self._waiting: dict[int, Callable[[Values | None], object]] = {}
        self._tokens = count(1)

    def park(self, task: Task, wait: ReadNodes) -> None:
        """Have the nodes read."""
        self.ask(wait.paths, partial(self._runnable.wake, task))

    def ask(self, paths: Sequence[str], answered: Callable[[Values | None], object]) -> None:
        """Have nodes read; ``answered`` is called later, with None where the tree cannot be read."""
        token = next(self._tokens)
        self._waiting[token] = answered
        self._outbox.effects.append(ReadTree(token, paths))

    def read(self, event: NodesRead) -> None:
        """Hand the values to whoever waits for them."""
        answered = self._waiting.pop(event.token, None)
        if answered is not None:
            nodes = event.nodes
            answered(None if nodes is None else {node.path: node.value for node in nodes})
