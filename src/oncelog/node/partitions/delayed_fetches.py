"""Parked fetches: who waits for which partition to become readable (KIP-74's delayed fetch, without a purgatory)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.base.ids import TopicPartition
from oncelog.node.deadlines import Deadlines
from oncelog.node.requests.tasks import Runnable, Task

if TYPE_CHECKING:
    from oncelog.handlers.support.waits import UntilReadable


class DelayedFetches:
    """Waiting fetches by partition. Dicts, not sets: the order in which they are asked is the order of arrival."""

    def __init__(self, deadlines: Deadlines, runnable: Runnable) -> None:
        self._deadlines = deadlines
        self._runnable = runnable
        self._by_partition: dict[TopicPartition, dict[Task, UntilReadable]] = {}
        self._changed: dict[TopicPartition, None] = {}

    def park(self, task: Task, until: UntilReadable) -> None:
        """Park ``task`` until its ``ready()`` holds, or its deadline."""
        for partition in until.partitions:
            self._by_partition.setdefault(partition, {})[task] = until

        def wake(_now_ms: int) -> None:
            self._release(task, until)

        alarm = task.alarm = self._deadlines.at(until.deadline_ms, wake)

        def forget() -> None:
            self._forget(task, until)
            self._deadlines.cancel(alarm)

        task.forget = forget

    def changed(self, partition: TopicPartition) -> None:
        """Note that a partition's readable range moved; those who wait are asked when the event is over."""
        if partition in self._by_partition:
            self._changed[partition] = None

    def ask_waiting(self) -> None:
        """Ask everybody who waits for a partition that changed: once, however many did, and about those alone. Who
        waits for thousands would else be asked thousands of times about all of them."""
        if not self._changed:
            return
        changed, self._changed = self._changed, {}
        asked: dict[Task, tuple[UntilReadable, list[TopicPartition]]] = {}
        for partition in changed:
            for task, until in self._by_partition.get(partition, {}).items():
                asked.setdefault(task, (until, []))[1].append(partition)
        for task, (until, partitions) in asked.items():
            if not task.waiting or until.ready(partitions):
                self._release(task, until)

    def _forget(self, task: Task, until: UntilReadable) -> None:
        for partition in until.partitions:
            waiting = self._by_partition.get(partition)
            if waiting is not None and waiting.pop(task, None) is not None and not waiting:
                del self._by_partition[partition]

    def _release(self, task: Task, until: UntilReadable) -> None:
        self._forget(task, until)
        self._runnable.wake(task)
