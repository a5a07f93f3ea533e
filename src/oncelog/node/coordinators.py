"""Drives the group shards: decide, append, apply, and reply when it is durable; loads them from their logs.

Invariants:
1. Between a decision and its ``apply`` nothing else happens to the shard: append and apply follow at once.
2. A reply leaves when the decision's records are durable; so does one that shows what earlier records applied.
3. A shard decides nothing before its whole log has been applied: COORDINATOR_LOAD_IN_PROGRESS until then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import GroupId, LeaderEpoch, Offset, TopicPartition
from oncelog.core.groups.model import Decision, GroupSettings
from oncelog.core.groups.shard import GroupShard
from oncelog.handlers.context import CoordinatorRefusal
from oncelog.node.deadlines import Alarm, Deadlines
from oncelog.node.durability import Durability
from oncelog.node.replaying import apply_slice
from oncelog.node.tasks import Runnable, Task
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.storage.errors import AppendRefused

if TYPE_CHECKING:
    from oncelog.handlers.waits import Coordinate
    from oncelog.storage.log import PartitionLog

_REFUSALS: Final = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""What a client of the coordinator is told when its log refuses; UNKNOWN_SERVER_ERROR for the rest, as in Kafka."""


class _Led:
    """A shard of this broker with its alarm and its log, which may not exist before the first record."""

    __slots__ = ("_log", "alarm", "leader_epoch", "next_offset", "open_log", "shard")

    def __init__(self, shard: GroupShard, leader_epoch: LeaderEpoch, open_log: Callable[[], PartitionLog]) -> None:
        self.shard = shard
        self.leader_epoch = leader_epoch
        self.open_log = open_log
        self.alarm: Alarm | None = None
        self.next_offset = Offset(0)
        self._log: PartitionLog | None = None

    @property
    def log(self) -> PartitionLog:
        """The log, opened (and created, if need be) when it is first asked for."""
        if self._log is None:
            self._log = self.open_log()
        return self._log

    def is_empty(self) -> bool:
        """Whether there is no log yet, so nothing to load."""
        return self._log is None


class Coordinators:
    """The group shards of this broker."""

    def __init__(
        self,
        settings: GroupSettings,
        commit_timeout_ms: int,
        deadlines: Deadlines,
        runnable: Runnable,
        durability: Durability,
    ) -> None:
        self._settings = settings
        self._commit_timeout_ms = commit_timeout_ms
        self._deadlines = deadlines
        self._runnable = runnable
        self._durability = durability
        self._led: dict[int, _Led] = {}
        self._partition_count = 0
        self._loading: deque[_Led] = deque()
        self._tokens: dict[int, Task] = {}
        self._next_token = 1

    # Life cycle

    def lead(
        self, partition: int, leader_epoch: LeaderEpoch, open_log: Callable[[], PartitionLog], *, is_new: bool
    ) -> None:
        """Coordinate the groups of one partition of ``__consumer_offsets``: load it when its log is durable, at once
        when it ``is_new`` and there is nothing to load. Nothing happens when it is led already."""
        if partition in self._led:
            return
        led = self._led[partition] = _Led(GroupShard(partition, self._settings), leader_epoch, open_log)
        if is_new:
            self._loading.append(led)
            return
        led.next_offset = Offset(led.log.log_start_offset)
        self._durability.when_durable(led.log, led.log.log_end_offset, lambda: self._loading.append(led))

    def set_partition_count(self, count: int) -> None:
        """How many partitions ``__consumer_offsets`` has; 0: it does not exist."""
        self._partition_count = count

    def drop_all(self, now_ms: int) -> None:
        """``__consumer_offsets`` was deleted."""
        for led in self._led.values():
            self._cancel(led)
            for token, reply in led.shard.unloaded(now_ms).released:
                self._reply(token, reply)
        for token in list(self._tokens):  # their records were not durable yet, and never will be
            self._runnable.wake(self._tokens.pop(token), error=CoordinatorRefusal(ErrorCode.NOT_COORDINATOR))
        self._led.clear()
        self._loading.clear()

    def load_slice(self, now_ms: int) -> bool:
        """Apply one slice of a log that is being loaded; whether there is more to do."""
        while self._loading:
            led = self._loading[0]
            following = None if led.is_empty() else apply_slice(led.shard, led.log, led.next_offset)
            if following is not None:
                led.next_offset = following
                return True
            self._loading.popleft()
            self._carry_out(led, led.shard.loaded(now_ms), None, now_ms)
        return False

    # Asking

    def shards(self) -> Iterable[GroupShard]:
        """All that are loaded."""
        return (led.shard for led in self._led.values() if led.shard.is_loaded)

    def shard_of(self, group_id: GroupId) -> GroupShard | None:
        """The loaded shard that coordinates a group, None when :meth:`refusal` says why not."""
        led = self._find(group_id)
        return led.shard if led is not None and led.shard.is_loaded else None

    def refusal(self, group_id: GroupId) -> ErrorCode:
        """NONE, or why this broker cannot coordinate the group now."""
        led = self._find(group_id)
        if led is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE if led.shard.is_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def _find(self, group_id: GroupId) -> _Led | None:
        if self._partition_count == 0:
            return None
        return self._led.get(coordinator_partition(group_id, self._partition_count))

    # Deciding

    def coordinate(self, task: Task, wait: Coordinate, now_ms: int) -> None:
        """Let a request decide in its group's shard."""
        led = self._find(wait.group_id)
        if led is None or not led.shard.is_loaded:
            self._runnable.wake(task, error=CoordinatorRefusal(self.refusal(wait.group_id)))
            return
        token = self._next_token
        self._next_token += 1
        self._tokens[token] = task
        task.forget = lambda: self._tokens.pop(token, None)  # type: ignore[assignment]  # result unused
        decision = wait.decide(led.shard, token, now_ms)
        self._carry_out(led, decision, token, now_ms)

    def partitions_deleted(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        """Topics are gone: so are the offsets committed for them."""
        gone = list(partitions)
        for led in self._led.values():
            if led.shard.is_loaded:
                self._carry_out(led, led.shard.partitions_deleted(gone), None, now_ms)

    def _carry_out(self, led: _Led, decision: Decision, token: int | None, now_ms: int) -> None:
        if decision.records:
            refusal = self._append(led, decision, now_ms)
            if refusal is not ErrorCode.NONE:
                self._append_refused(led, decision, token, refusal, now_ms)
                return
        self._deliver_when_durable(led, decision, token, now_ms)
        self._set_alarm(led)

    def _append(self, led: _Led, decision: Decision, now_ms: int) -> ErrorCode:
        records = [Record(index, now_ms, key, value, ()) for index, (key, value) in enumerate(decision.records)]
        try:
            led.log.append(
                memoryview(build_batch(records)), now_ms=now_ms, leader_epoch=led.leader_epoch, internal=True
            )
        except AppendRefused as refused:
            return _REFUSALS.get(refused.error_code, ErrorCode.UNKNOWN_SERVER_ERROR)
        except OSError:
            return ErrorCode.NOT_COORDINATOR
        for key, value in decision.records:
            led.shard.apply(key, value)
        self._durability.appended(led.log, now_ms)
        return ErrorCode.NONE

    def _append_refused(
        self, led: _Led, decision: Decision, token: int | None, refusal: ErrorCode, now_ms: int
    ) -> None:
        if token is not None:
            task = self._tokens.pop(token, None)
            if task is not None:
                self._runnable.wake(task, error=CoordinatorRefusal(refusal))
        self._carry_out(led, led.shard.aborted(decision, refusal, now_ms), None, now_ms)

    def _deliver_when_durable(self, led: _Led, decision: Decision, token: int | None, now_ms: int) -> None:
        replies = list(decision.released)
        if token is not None and decision.reply is not None:
            replies.append((token, decision.reply))
        if not replies:
            return
        if not decision.records and not decision.waits_for_pending:
            self._reply_all(replies)
            return
        if token is not None and decision.reply is not None:
            self._bound(token, now_ms)
        self._durability.when_durable(led.log, led.log.log_end_offset, lambda: self._reply_all(replies))

    def _bound(self, token: int, now_ms: int) -> None:
        """``offsets.commit.timeout.ms``: a disk that does not answer must not hold a client for ever."""
        task = self._tokens[token]

        def give_up(_now_ms: int) -> None:
            if self._tokens.pop(token, None) is not None:
                self._runnable.wake(task, error=CoordinatorRefusal(ErrorCode.COORDINATOR_NOT_AVAILABLE))

        task.alarm = self._deadlines.at(now_ms + self._commit_timeout_ms, give_up)

    def _reply_all(self, replies: Iterable[tuple[int, object]]) -> None:
        for token, reply in replies:
            self._reply(token, reply)

    def _reply(self, token: int, reply: object) -> None:
        task = self._tokens.pop(token, None)
        if task is not None:
            self._runnable.wake(task, reply)

    # Time

    def _set_alarm(self, led: _Led) -> None:
        deadline_ms = led.shard.deadline_ms()
        if led.alarm is not None and led.alarm.callback is not None and led.alarm.at_ms == deadline_ms:
            return
        self._cancel(led)
        if deadline_ms is not None:
            led.alarm = self._deadlines.at(deadline_ms, self._ticker(led))

    def _ticker(self, led: _Led) -> Callable[[int], None]:
        return lambda now_ms: self._carry_out(led, led.shard.tick(now_ms), None, now_ms)

    def _cancel(self, led: _Led) -> None:
        if led.alarm is not None:
            self._deadlines.cancel(led.alarm)
            led.alarm = None
