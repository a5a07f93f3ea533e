"""Drives coordinator shards: decide, append, apply, and reply when it is durable; loads them from their logs.

What groups and transactions have in common; ``group_coordinators`` and ``transaction_coordinators`` are the two.

Invariants:
1. Between a decision and its ``apply`` nothing else happens to the shard: append and apply follow at once.
2. A reply leaves when the decision's records are durable; so does one that shows what earlier records applied.
3. A shard decides nothing before its whole log has been applied: COORDINATOR_LOAD_IN_PROGRESS until then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import LeaderEpoch, Offset, TopicPartition
from oncelog.handlers.context import CoordinatorRefusal
from oncelog.node.deadlines import Alarm, Deadlines
from oncelog.node.durability import Durability
from oncelog.node.replaying import ApplyBatch, apply_slice
from oncelog.node.tasks import Runnable, Task
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.storage.errors import AppendRefused

if TYPE_CHECKING:
    from oncelog.storage.log import PartitionLog

AT_ONCE_MS: Final = 0
_REFUSALS: Final = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""What a client of the coordinator is told when its log refuses; UNKNOWN_SERVER_ERROR for the rest, as in Kafka."""


class Shard(Protocol):
    """What both kinds of shards have; a decision has ``records, reply, released``."""

    is_loaded: bool

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Take over one record of the log."""

    def loaded(self, now_ms: int) -> Any:
        """The whole log has been applied."""

    def unloaded(self, now_ms: int) -> Any:
        """The shard is this broker's no more."""

    def aborted(self, decision: Any, error_code: ErrorCode, now_ms: int) -> Any:
        """A decision's records were refused."""

    def partitions_deleted(self, partitions: Any, now_ms: int) -> Any:
        """Partitions of topics are gone."""

    def deadline_ms(self) -> int | None:
        """When to tick next."""

    def tick(self, now_ms: int) -> Any:
        """Do one thing that is due."""


S = TypeVar("S", bound=Shard)


class Led(Generic[S]):
    """A shard of this broker with its alarm and its log, which may not exist before the first record."""

    __slots__ = ("_log", "alarm", "leader_epoch", "next_offset", "open_log", "shard")

    def __init__(self, shard: S, leader_epoch: LeaderEpoch, open_log: Callable[[], PartitionLog]) -> None:
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


class Coordinators(Generic[S]):
    """The shards of this broker for one internal topic."""

    def __init__(
        self, append_timeout_ms: int, deadlines: Deadlines, runnable: Runnable, durability: Durability
    ) -> None:
        self._append_timeout_ms = append_timeout_ms
        self._deadlines = deadlines
        self._runnable = runnable
        self._durability = durability
        self._led: dict[int, Led[S]] = {}
        self._partition_count = 0
        self._loading: deque[Led[S]] = deque()
        self._tokens: dict[int, Task] = {}
        self._next_token = 1

    # What the two kinds do each in their way

    def _new_shard(self, partition: int, leader_epoch: LeaderEpoch) -> S:
        """An empty shard."""
        raise NotImplementedError

    def _replayer(self, shard: S) -> ApplyBatch:
        """How a batch of the log is applied to a shard that is being loaded."""
        raise NotImplementedError

    def _write(self, led: Led[S], decision: Any, now_ms: int) -> None:
        """Append a decision's records and apply them. Raises AppendRefused or OSError; then nothing is changed."""
        records = [Record(index, now_ms, key, value, ()) for index, (key, value) in enumerate(decision.records)]
        batch = memoryview(build_batch(records))
        led.log.append(batch, now_ms=now_ms, leader_epoch=led.leader_epoch, internal=True)
        for key, value in decision.records:
            led.shard.apply(key, value)

    def _shown_upto(self, led: Led[S], decision: Any) -> Offset | None:
        """The offset after the last record that a decision without records shows in its reply; None: it shows none
        that could be pending."""
        return led.log.log_end_offset if decision.waits_for_pending else None

    def _follow_up(self, led: Led[S], decision: Any, now_ms: int) -> None:
        """What else a decision calls for, once its records are appended."""

    # Life cycle

    def lead(
        self, partition: int, leader_epoch: LeaderEpoch, open_log: Callable[[], PartitionLog], *, is_new: bool
    ) -> None:
        """Coordinate what belongs to one partition of the internal topic: load it when its log is durable, at once
        when it ``is_new`` and there is nothing to load. Nothing happens when it is led already."""
        if partition in self._led:
            return
        led = self._led[partition] = Led(self._new_shard(partition, leader_epoch), leader_epoch, open_log)
        if is_new:
            self._loading.append(led)
            return
        led.next_offset = Offset(led.log.log_start_offset)
        self._load_when_durable(led)

    def _load_when_durable(self, led: Led[S]) -> None:
        self._durability.when_durable(led.log, led.log.log_end_offset, lambda: self._loading.append(led))

    def set_partition_count(self, count: int) -> None:
        """How many partitions the internal topic has; 0: it does not exist."""
        self._partition_count = count

    def drop_all(self, now_ms: int) -> None:
        """The internal topic was deleted."""
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
            if not led.is_empty():
                following = apply_slice(self._replayer(led.shard), led.log, led.next_offset)
                if following is not None:
                    led.next_offset = following
                    return True
            self._loading.popleft()
            if not led.is_empty() and led.log.high_watermark < led.log.log_end_offset:
                self._load_when_durable(led)  # a marker was written meanwhile
                continue
            self._carry_out(led, led.shard.loaded(now_ms), None, now_ms)
        return False

    # Asking

    def shards(self) -> Iterable[S]:
        """All that are loaded."""
        return (led.shard for led in self._led.values() if led.shard.is_loaded)

    def is_loading(self) -> bool:
        """Whether some are not."""
        return any(not led.shard.is_loaded for led in self._led.values())

    def shard_of(self, name: str) -> S | None:
        """The loaded shard that coordinates an id, None when :meth:`refusal` says why not."""
        led = self._find(name)
        return led.shard if led is not None and led.shard.is_loaded else None

    def refusal(self, name: str) -> ErrorCode:
        """NONE, or why this broker cannot coordinate the id now."""
        led = self._find(name)
        if led is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE if led.shard.is_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def _find(self, name: str) -> Led[S] | None:
        if self._partition_count == 0:
            return None
        return self._led.get(coordinator_partition(name, self._partition_count))

    # Deciding

    def decide(self, task: Task, name: str, decide: Callable[[S, int, int], Any], now_ms: int) -> None:
        """Let a request decide in the shard of ``name``."""
        led = self._find(name)
        if led is None or not led.shard.is_loaded:
            self._runnable.wake(task, error=CoordinatorRefusal(self.refusal(name)))
            return
        token = self._next_token
        self._next_token += 1
        self._tokens[token] = task
        task.forget = lambda: self._tokens.pop(token, None)  # type: ignore[assignment]  # result unused
        self._carry_out(led, decide(led.shard, token, now_ms), token, now_ms)

    def partitions_deleted(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        """Topics are gone, with all that is kept for them."""
        gone = list(partitions)
        for led in self._led.values():
            if led.shard.is_loaded:
                self._carry_out(led, led.shard.partitions_deleted(gone, now_ms), None, now_ms)

    def _carry_out(self, led: Led[S], decision: Any, token: int | None, now_ms: int) -> None:
        """Append, apply, see to replies and deadlines; then what the shard has to do at once."""
        self._carry_out_one(led, decision, token, now_ms)
        while led.shard.is_loaded and (due_ms := led.shard.deadline_ms()) is not None and due_ms <= AT_ONCE_MS:
            self._carry_out_one(led, led.shard.tick(now_ms), None, now_ms)
        self._set_alarm(led)

    def _carry_out_one(self, led: Led[S], decision: Any, token: int | None, now_ms: int) -> None:
        if decision.records:
            refusal = self._append(led, decision, now_ms)
            if refusal is not ErrorCode.NONE:
                self._append_refused(led, decision, token, refusal, now_ms)
                return
        self._deliver_when_durable(led, decision, token, now_ms)
        self._follow_up(led, decision, now_ms)

    def _append(self, led: Led[S], decision: Any, now_ms: int) -> ErrorCode:
        try:
            self._write(led, decision, now_ms)
        except AppendRefused as refused:
            return self._told(refused.error_code)
        except OSError:
            return ErrorCode.NOT_COORDINATOR
        self._durability.appended(led.log, now_ms)
        return ErrorCode.NONE

    def _told(self, error_code: ErrorCode) -> ErrorCode:
        """What a client of the coordinator is told when the log refuses."""
        return _REFUSALS.get(error_code, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _append_refused(self, led: Led[S], decision: Any, token: int | None, refusal: ErrorCode, now_ms: int) -> None:
        if token is not None:
            task = self._tokens.pop(token, None)
            if task is not None:
                self._runnable.wake(task, error=CoordinatorRefusal(refusal))
        self._carry_out_one(led, led.shard.aborted(decision, refusal, now_ms), None, now_ms)

    def _deliver_when_durable(self, led: Led[S], decision: Any, token: int | None, now_ms: int) -> None:
        replies = list(decision.released)
        if token is not None and decision.reply is not None:
            replies.append((token, decision.reply))
        if not replies:
            return
        shown_upto = led.log.log_end_offset if decision.records else self._shown_upto(led, decision)
        if shown_upto is None:
            self._reply_all(replies)
            return
        if token is not None and decision.reply is not None:
            self._bound(token, now_ms)
        self._durability.when_durable(led.log, shown_upto, lambda: self._reply_all(replies))

    def _bound(self, token: int, now_ms: int) -> None:
        """A disk that does not answer must not hold a client for ever."""
        task = self._tokens[token]

        def give_up(_now_ms: int) -> None:
            if self._tokens.pop(token, None) is not None:
                self._runnable.wake(task, error=CoordinatorRefusal(ErrorCode.COORDINATOR_NOT_AVAILABLE))

        task.alarm = self._deadlines.at(now_ms + self._append_timeout_ms, give_up)

    def _reply_all(self, replies: Iterable[tuple[int, object]]) -> None:
        for token, reply in replies:
            self._reply(token, reply)

    def _reply(self, token: int, reply: object) -> None:
        task = self._tokens.pop(token, None)
        if task is not None:
            self._runnable.wake(task, reply)

    # Time

    def _set_alarm(self, led: Led[S]) -> None:
        deadline_ms = led.shard.deadline_ms()
        if led.alarm is not None and led.alarm.callback is not None and led.alarm.at_ms == deadline_ms:
            return
        self._cancel(led)
        if deadline_ms is not None:
            led.alarm = self._deadlines.at(deadline_ms, self._ticker(led))

    def _ticker(self, led: Led[S]) -> Callable[[int], None]:
        return lambda now_ms: self._carry_out(led, led.shard.tick(now_ms), None, now_ms)

    def _cancel(self, led: Led[S]) -> None:
        if led.alarm is not None:
            self._deadlines.cancel(led.alarm)
            led.alarm = None
