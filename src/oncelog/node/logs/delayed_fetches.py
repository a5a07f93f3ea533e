"""Parked fetches, by the partitions whose new data they wait for (Kafka's delayed fetches, KIP-74, without a
purgatory).

Fetches of share groups (KIP-932) also wait for share partitions, whose records become available without an append."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from oncelog.base.ids import TopicPartition
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.node.kernel.tasks import Runnable, Task

if TYPE_CHECKING:
    from oncelog.core.share_state.model import ShareKey
    from oncelog.handlers.broker.waits import FetchKey, UntilReadable


class DelayedFetches:
    def __init__(self, deadlines: Deadlines, runnable: Runnable) -> None:
        self._deadlines = deadlines
        self._runnable = runnable
        # Dicts instead of sets: fetches are checked in order of arrival.
        self._by_key: dict[FetchKey, dict[Task, UntilReadable]] = {}
        # Fetches that wait for any partition: those of followers, whose sessions may hold thousands.
        self._for_any_partition: dict[Task, UntilReadable] = {}
        self._changed: dict[FetchKey, None] = {}
        # The position of each partition's last change, in order of position; None until ``changed_since`` is called
        # first.
        self._journal: dict[TopicPartition, int] | None = None
        self.position = 0

    def park(self, task: Task, until: UntilReadable) -> None:
        """Park ``task`` until its ``ready()`` holds, or its deadline."""
        if until.partitions is None:
            self._for_any_partition[task] = until
        for key in until.partitions or ():
            self._by_key.setdefault(key, {})[task] = until

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
        """Note that a partition's readable range moved; its fetches are checked at the end of the event."""
        if self._journal is not None:
            self._journal.pop(partition, None)
            self.position += 1
            self._journal[partition] = self.position
        if self._for_any_partition or partition in self._by_key:
            self._changed[partition] = None

    def wake(self, key: ShareKey) -> bool:
        """Note that a share partition may have records again; its fetches are checked at the end of the event. False if
        none waits."""
        is_awaited = key in self._by_key
        if is_awaited:
            self._changed[key] = None
        return is_awaited

    def changed_since(self, position: int) -> Sequence[TopicPartition]:
        """Partitions that changed after a position; changes before the first call are not recorded."""
        if self._journal is None:
            self._journal = {}
        if position == self.position:
            return ()
        partitions = []
        for partition, changed_at in reversed(self._journal.items()):
            if changed_at <= position:
                break
            partitions.append(partition)
        partitions.reverse()
        return partitions

    def deleted(self, partition: TopicPartition) -> None:
        if self._journal is not None:
            self._journal.pop(partition, None)

    def wake_ready(self) -> None:
        """Check the fetches of changed partitions."""
        if not self._changed:
            return
        changed, self._changed = self._changed, {}
        # Each fetch is checked once, and only for its changed partitions: one that waits for thousands would otherwise
        # be checked thousands of times for all of them.
        checks: dict[Task, tuple[UntilReadable, list[FetchKey]]] = {}
        for key in changed:
            for task, until in self._by_key.get(key, {}).items():
                checks.setdefault(task, (until, []))[1].append(key)
        if self._for_any_partition:
            partitions: list[FetchKey] = [key for key in changed if isinstance(key, TopicPartition)]
            checks.update((task, (until, partitions)) for task, until in self._for_any_partition.items() if partitions)
        for task, (until, keys) in checks.items():
            if not task.waiting or until.ready(keys):
                self._release(task, until)

    def _forget(self, task: Task, until: UntilReadable) -> None:
        if until.partitions is None:
            self._for_any_partition.pop(task, None)
        for key in until.partitions or ():
            waiting = self._by_key.get(key)
            if waiting is not None and waiting.pop(task, None) is not None and not waiting:
                del self._by_key[key]

    def _release(self, task: Task, until: UntilReadable) -> None:
        self._forget(task, until)
        self._runnable.wake(task)
