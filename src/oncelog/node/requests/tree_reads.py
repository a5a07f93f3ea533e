"""Reads of the coordination tree for requests: of nodes that the cluster's image does not have."""

from __future__ import annotations

from itertools import count

from oncelog.handlers.support.waits import ReadNodes
from oncelog.node.events import NodesRead, ReadTree
from oncelog.node.outbox import Outbox
from oncelog.node.requests.tasks import Runnable, Task


class TreeReads:
    """The reads under way. One whose answer never comes keeps its request, as long as its connection lives."""

    def __init__(self, runnable: Runnable, outbox: Outbox) -> None:
        self._runnable = runnable
        self._outbox = outbox
        self._tasks: dict[int, Task] = {}
        self._tokens = count(1)

    def park(self, task: Task, wait: ReadNodes) -> None:
        """Have the nodes read."""
        token = next(self._tokens)
        self._tasks[token] = task
        self._outbox.effects.append(ReadTree(token, wait.paths))

    def read(self, event: NodesRead) -> None:
        """Hand the values to the request that waits for them."""
        task = self._tasks.pop(event.token, None)
        if task is not None:
            nodes = event.nodes
            self._runnable.wake(task, None if nodes is None else {node.path: node.value for node in nodes})
