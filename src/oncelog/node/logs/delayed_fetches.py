"""Parked fetches: who waits for which partition to become readable (KIP-74's delayed fetch, without a purgatory)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from oncelog.base.ids import TopicPartition
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.node.kernel.tasks import Runnable, Task

if TYPE_CHECKING:
    from oncelog.handlers.broker.waits import UntilReadable


class DelayedFetches:
    """Waiting fetches by partition. Dicts, not sets: the order in which they are asked is the order of arrival."""

    def __init__(self, deadlines: Deadlines, runnable: Runnable) -> None:
        self._deadlines = deadlines
        self._runnable = runnable
        self._by_partition: dict[TopicPartition, dict[Task, UntilReadable]] = {}
        self._of_any: dict[Task, UntilReadable] = {}
        """Fetches that wait for any partition: of followers, whose sessions may hold thousands."""
        self._changed: dict[TopicPartition, None] = {}
        self._journal: dict[TopicPartition, int] | None = None
        """Position of the last change of each partition, in the order of the positions; None while nobody asks."""
        self.position = 0

    def park(self, task: Task, until: UntilReadable) -> None:
        """Park ``task`` until its ``ready()`` holds, or its deadline."""
        if until.partitions is None:
            self._of_any[task] = until
        for partition in until.partitions or ():
            self._by_partition.setdefault(partition, {})[task] = until

        def wake(_now_ms: int) -> None:
            self._release(task, until)

        alarm = task.alarm = self._deadlines.at(until.deadline_ms, wake)

        def forget() -> None:
            self._forget(task, until)
            self._deadlines.cancel(alarm)

        task.forget = forget
        task.finish = partial(self._release, task, until)
        if until.gives_way:
            task.nudge = task.finish

    def changed(self, partition: TopicPartition) -> None:
        """Note that a partition's readable range moved; those who wait are asked when the event is over."""
        if self._journal is not None:
            self._journal.pop(partition, None)
            self.position += 1
            self._journal[partition] = self.position
        if self._of_any or partition in self._by_partition:
            self._changed[partition] = None

    def changed_since(self, position: int) -> Sequence[TopicPartition]:
        """Partitions that have changed after a position: those since the first time that anybody asked."""
        if self._journal is None:
            self._journal = {}
        if position == self.position:
            return ()
        found = []
        for partition, at in reversed(self._journal.items()):
            if at <= position:
                break
            found.append(partition)
        found.reverse()
        return found

    def deleted(self, partition: TopicPartition) -> None:
        """Remember no changes of a partition that is gone."""
        if self._journal is not None:
            self._journal.pop(partition, None)

    def wake_ready(self) -> None:
        """Ask everybody who waits for a partition that changed: once, however many did, and about those alone. Who
        waits for thousands would else be asked thousands of times about all of them."""
        if not self._changed:
            return
        changed, self._changed = self._changed, {}
        asked: dict[Task, tuple[UntilReadable, list[TopicPartition]]] = {}
        for partition in changed:
            for task, until in self._by_partition.get(partition, {}).items():
                asked.setdefault(task, (until, []))[1].append(partition)
        if self._of_any:
            everything = list(changed)
            asked.update((task, (until, everything)) for task, until in self._of_any.items())
        for task, (until, partitions) in asked.items():
            if not task.waiting or until.ready(partitions):
                self._release(task, until)

    def _forget(self, task: Task, until: UntilReadable) -> None:
        if until.partitions is None:
            self._of_any.pop(task, None)
        for partition in until.partitions or ():
            waiting = self._by_partition.get(partition)
            if waiting is not None and waiting.pop(task, None) is not None and not waiting:
                del self._by_partition[partition]

    def _release(self, task: Task, until: UntilReadable) -> None:
        self._forget(task, until)
        self._runnable.wake(task)
