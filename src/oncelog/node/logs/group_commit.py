"""Group commit: appended records become durable, the high watermark follows, and waiting tasks wake. Invariants:

1. With ``log.sync.policy=commit`` the high watermark never passes a finished sync, so no reader sees a record that a
   power cut removes, and no acks=all is answered early.
2. At most one sync per partition is in flight; records appended meanwhile share the next: its size adapts to the disk.
3. A failed sync stops the node.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from oncelog.base.ids import BrokerId, Offset, TopicPartition
from oncelog.core.replicas.leader import LeaderReplicas
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.node.kernel.events import Effect, Fatal, Sync, Synced
from oncelog.node.kernel.tasks import Runnable, Task
from oncelog.node.logs.delayed_fetches import DelayedFetches

if TYPE_CHECKING:
    from oncelog.handlers.broker.waits import UntilDurable
    from oncelog.storage.log.partition_log import PartitionLog


@dataclass(slots=True, eq=False)
class _DurableWait:
    task: Task
    missing: set[TopicPartition]
    runnable: Runnable

    def reached(self, partition: TopicPartition) -> None:
        self.missing.discard(partition)
        if not self.missing:
            self.runnable.wake(self.task, self.missing)

    def dropped(self) -> None:
        self.runnable.wake(self.task, self.missing)


class _Callback:
    __slots__ = ("_callback", "_on_lost")

    def __init__(self, callback: Callable[[], None], on_lost: Callable[[], None] | None) -> None:
        self._callback = callback
        self._on_lost = on_lost

    def reached(self, _partition: TopicPartition) -> None:
        self._callback()

    def dropped(self) -> None:
        if self._on_lost is not None:
            self._on_lost()


class GroupCommit:
    """Syncs appended data and advances high watermarks."""

    def __init__(
        self,
        broker_id: BrokerId,
        deadlines: Deadlines,
        runnable: Runnable,
        delayed_fetches: DelayedFetches,
        *,
        commit: bool,
    ) -> None:
        self._broker_id = broker_id
        self._deadlines = deadlines
        self._runnable = runnable
        self._delayed_fetches = delayed_fetches
        self._commit = commit
        # Led partitions only: a follower's high watermark comes from its leader.
        self._replicas: dict[TopicPartition, LeaderReplicas] = {}
        self._dirty: dict[TopicPartition, PartitionLog] = {}
        self._in_flight: dict[TopicPartition, int] = {}
        self._syncs: dict[int, tuple[PartitionLog, Offset]] = {}
        self._next_token = 1
        self._waits: dict[TopicPartition, deque[tuple[Offset, _DurableWait | _Callback]]] = {}
        self._unflushed: dict[TopicPartition, tuple[Offset, int]] = {}
        self._synced_callbacks: dict[TopicPartition, list[tuple[Offset, Callable[[], None]]]] = {}

    def lead(self, partition: TopicPartition, replicas: LeaderReplicas) -> None:
        """Advance the high watermark of a partition that this broker leads from now on."""
        self._replicas[partition] = replicas

    def resign(self, partition: TopicPartition) -> None:
        self._replicas.pop(partition, None)
        for _, wait in self._waits.pop(partition, ()):
            wait.dropped()

    def appended(self, log: PartitionLog) -> None:
        """``log`` grew: sync it as the policy says, and advance what can be advanced at once."""
        replicas = self._replicas.get(log.partition)
        # Followers copy the records while they are synced here.
        if replicas is not None and replicas.has_followers:
            # if self ==>
            self._delayed_fetches.changed(log.partition)
        if self._commit:
            self._dirty[log.partition] = log
            return
        self._advance(log, log.log_end_offset)
        if log.has_unsynced_segments:
            self.flush(log)  # as Apache Kafka does with a segment that is full
        if log.config.bounds_unflushed:
            self._flush_by_topic_config(log, self._deadlines.now_ms)

    def flush(self, log: PartitionLog) -> None:
        """Sync ``log`` soon, with no task waiting for it."""
        if log.partition not in self._in_flight:
            self._dirty[log.partition] = log

    def _flush_by_topic_config(self, log: PartitionLog, now_ms: int) -> None:
        # ``flush.messages`` and ``flush.ms`` bound the loss in a power cut under the page-cache policy.
        first_offset, since_ms = self._unflushed.setdefault(log.partition, (log.durable_offset, now_ms))
        config = log.config
        if log.log_end_offset - first_offset >= config.flush_messages or now_ms - since_ms >= config.flush_ms:
            self._unflushed.pop(log.partition)
            self._dirty[log.partition] = log
        elif since_ms == now_ms and config.flush_ms < 2**62:
            self._deadlines.at(now_ms + config.flush_ms, lambda _now: self._flush_now(log))

    def _flush_now(self, log: PartitionLog) -> None:
        if self._unflushed.pop(log.partition, None) is not None:
            self._dirty[log.partition] = log

    def when_synced(self, log: PartitionLog, callback: Callable[[], None]) -> None:
        """Call back when all that ``log`` holds now is on disk; at once if the policy does not require syncs."""
        if not self._commit or log.durable_offset >= log.log_end_offset:
            callback()
            return
        self._synced_callbacks.setdefault(log.partition, []).append((log.log_end_offset, callback))
        self._dirty[log.partition] = log

    def _run_synced_callbacks(self, log: PartitionLog) -> None:
        waiting = self._synced_callbacks.pop(log.partition, None)
        if waiting is None:
            return
        # The awaited end may lie beyond a truncation.
        remaining = [entry for entry in waiting if log.durable_offset < min(entry[0], log.log_end_offset)]
        if remaining:
            self._synced_callbacks[log.partition] = remaining
            self._dirty[log.partition] = log
        for entry in waiting:
            if entry not in remaining:
                entry[1]()

    def start_syncs(self, effects: list[Effect]) -> None:
        """Emit a sync for every dirty partition that has none in flight."""
        if not self._dirty:
            return
        for partition in [partition for partition in self._dirty if partition not in self._in_flight]:
            log = self._dirty.pop(partition)
            files, upto = log.files_to_sync()
            token = self._next_token
            self._next_token += 1
            self._in_flight[partition] = token
            self._syncs[token] = (log, upto)
            effects.append(Sync(token, files))

    def synced(self, event: Synced, effects: list[Effect]) -> None:
        log, upto = self._syncs.pop(event.token)
        if self._in_flight.get(log.partition) != event.token:
            return  # the partition was deleted meanwhile, with its files and waits
        del self._in_flight[log.partition]
        if event.failure is not None:
            # No retry: the page cache may have dropped the data, and a retry would succeed falsely (fsyncgate).
            effects.append(Fatal(f"could not sync {log.partition} to disk: {event.failure}"))
            return
        log.synced(upto)
        if self._commit:
            self._advance(log, log.durable_offset)
        if self._synced_callbacks:
            self._run_synced_callbacks(log)

    def _advance(self, log: PartitionLog, offset: Offset) -> None:
        replicas = self._replicas.get(log.partition)
        if replicas is not None and log.set_high_watermark(replicas.advance(self._broker_id, offset)):
            self._high_watermark_moved(log)

    def commit_durable(self, log: PartitionLog) -> None:
        """Commit what was on disk before this broker led: without other replicas all of it counts."""
        self._advance(log, log.durable_offset)

    def replicas_changed(self, log: PartitionLog) -> None:
        """A follower has fetched, or the in-sync set has changed: advance what can be advanced."""
        replicas = self._replicas.get(log.partition)
        if replicas is not None and log.set_high_watermark(replicas.settle()):
            self._high_watermark_moved(log)

    def _high_watermark_moved(self, log: PartitionLog) -> None:
        partition = log.partition
        queue = self._waits.get(partition)
        if queue is not None:
            while queue and queue[0][0] <= log.high_watermark:
                queue.popleft()[1].reached(partition)
            if not queue:
                del self._waits[partition]
        self._delayed_fetches.changed(partition)

    def wait(self, task: Task, until: UntilDurable, logs: dict[TopicPartition, PartitionLog | None]) -> None:
        """Park ``task`` until every high watermark in ``until`` is reached."""
        missing = {
            partition
            for partition, offset in until.offsets.items()
            if (log := logs[partition]) is None or log.high_watermark < offset
        }
        if not missing:
            self._runnable.wake(task, missing)
            return
        wait = _DurableWait(task, missing, self._runnable)
        for partition in sorted(missing):
            self._enqueue(partition, until.offsets[partition], wait)
        task.alarm = self._deadlines.at(until.deadline_ms, lambda _now: self._runnable.wake(task, wait.missing))

    def when_durable(
        self, log: PartitionLog, offset: Offset, call: Callable[[], None], lost: Callable[[], None] | None = None
    ) -> None:
        """Call ``call`` once the high watermark of ``log`` reaches ``offset``, at once if it has; ``lost`` if it never
        will here: the partition was deleted or has another leader.
        """
        if log.high_watermark >= offset:
            call()
        else:
            self._enqueue(log.partition, offset, _Callback(call, lost))

    def _enqueue(self, partition: TopicPartition, offset: Offset, wait: _DurableWait | _Callback) -> None:
        queue = self._waits.setdefault(partition, deque())
        if not queue or queue[-1][0] <= offset:
            queue.append((offset, wait))
        else:  # a duplicate of an idempotent producer waits for an offset that was appended before
            insort(queue, (offset, wait), key=itemgetter(0))

    def dropped(self, partition: TopicPartition) -> None:
        """The partition is gone: tasks that wait for it wake and find it missing."""
        self._dirty.pop(partition, None)
        self._in_flight.pop(partition, None)
        self._unflushed.pop(partition, None)
        self._synced_callbacks.pop(partition, None)
        self.resign(partition)

    def is_idle(self) -> bool:
        return not self._dirty and not self._syncs
