"""Drives coordinator shards: decide, append, apply, and reply when it is durable; loads them from their logs.

What groups and transactions have in common; ``group_coordinators`` and ``transaction_coordinators`` are the two.

Invariants:
1. Between a decision and its ``apply`` nothing else happens to the shard: append and apply follow at once.
2. A reply leaves when the decision's records are durable; so does one that shows what earlier records applied.
3. A shard decides nothing before its whole log has been applied. Who asks earlier waits for that, where the kind of
   coordinator lets it, in order of arrival; then it is told COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic

from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import LeaderEpoch, Offset, TopicPartition
from oncelog.node.coordinators.hosted_shard import HostedShard, S
from oncelog.node.coordinators.loading import ApplyBatch, apply_slice
from oncelog.node.coordinators.pending_requests import PendingRequest, for_each, for_one
from oncelog.node.deadlines import Deadlines
from oncelog.node.partitions.group_commit import GroupCommit
from oncelog.node.requests.tasks import Runnable, Task
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.storage.errors import AppendRefused

if TYPE_CHECKING:
    from oncelog.storage.log.partition_log import PartitionLog

AT_ONCE_MS: Final = 0
_REFUSALS: Final = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""What a client of the coordinator is told when its log refuses; UNKNOWN_SERVER_ERROR for the rest, as in Kafka."""


class Coordinators(Generic[S]):
    """The shards of this broker for one internal topic."""

    def __init__(
        self, append_timeout_ms: int, deadlines: Deadlines, runnable: Runnable, durability: GroupCommit
    ) -> None:
        self._append_timeout_ms = append_timeout_ms
        self._deadlines = deadlines
        self._runnable = runnable
        self._durability = durability
        self._led: dict[int, HostedShard[S]] = {}
        self._partition_count = 0
        self._loading: deque[HostedShard[S]] = deque()
        self._tokens: dict[int, PendingRequest] = {}
        self._next_token = 1

    # What the two kinds do each in their way

    def _new_shard(self, partition: int, leader_epoch: LeaderEpoch) -> S:
        """An empty shard."""
        raise NotImplementedError

    def _load_wait_ms(self) -> int:
        """How long a request may wait for its shard to be loaded; 0: it is refused at once."""
        return 0

    def _replayer(self, shard: S) -> ApplyBatch:
        """How a batch of the log is applied to a shard that is being loaded."""
        raise NotImplementedError

    def _write(self, led: HostedShard[S], decision: Any, now_ms: int) -> None:
        """Append a decision's records and apply them. Raises AppendRefused or OSError; then nothing is changed."""
        records = [Record(index, now_ms, key, value, ()) for index, (key, value) in enumerate(decision.records)]
        batch = memoryview(build_batch(records))
        led.log.append(batch, now_ms=now_ms, leader_epoch=led.leader_epoch, internal=True)
        for key, value in decision.records:
            led.shard.apply(key, value)

    def _shown_upto(self, led: HostedShard[S], decision: Any) -> Offset | None:
        """The offset after the last record that a decision without records shows in its reply; None: it shows none
        that could be pending."""
        return led.log.log_end_offset if decision.waits_for_pending else None

    def _follow_up(self, led: HostedShard[S], decision: Any, now_ms: int) -> None:
        """What else a decision calls for, once its records are appended."""

    # Life cycle

    def lead(
        self, partition: int, leader_epoch: LeaderEpoch, open_log: Callable[[], PartitionLog], *, is_new: bool
    ) -> None:
        """Coordinate what belongs to one partition of the internal topic: load it when its log is durable, at once
        when it ``is_new`` and there is nothing to load. Nothing happens when it is led already."""
        if partition in self._led:
            return
        led = self._led[partition] = HostedShard(self._new_shard(partition, leader_epoch), leader_epoch, open_log)
        if is_new:
            self._loading.append(led)
            return
        led.next_offset = Offset(led.log.log_start_offset)
        self._load_when_durable(led)

    def _load_when_durable(self, led: HostedShard[S]) -> None:
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
            for asker in list(led.until_loaded):
                self._refuse(led, asker, ErrorCode.NOT_COORDINATOR)
        for token in list(self._tokens):  # their records were not durable yet, and never will be
            self._answered(self._tokens.pop(token)).refuse(ErrorCode.NOT_COORDINATOR)
        self._led.clear()
        self._loading.clear()

    def load_slice(self, now_ms: int) -> bool:
        """Apply one slice of a log that is being loaded; whether there is more to do, for requests too."""
        has_let_in = False
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
            has_let_in |= bool(led.until_loaded)
            for asker in list(led.until_loaded):
                self._decide_loaded(led, self._answered(asker), led.until_loaded.pop(asker), now_ms)
        return has_let_in

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

    def _find(self, name: str) -> HostedShard[S] | None:
        if self._partition_count == 0:
            return None
        return self._led.get(coordinator_partition(name, self._partition_count))

    # Deciding

    def decide(self, task: Task, name: str, decide: Callable[[S, int, int], Any], now_ms: int) -> None:
        """Let a request decide in the shard of ``name``."""
        task.forget = self._ask(for_one(task, self._runnable), name, decide, now_ms)

    def decide_each(self, task: Task, asked: Sequence[tuple[str, Callable[[S, int, int], Any]]], now_ms: int) -> None:
        """Let a request decide in several shards, or several times in one; it goes on when all have answered."""
        askers = for_each(task, len(asked), self._runnable)
        forget = [self._ask(asker, name, decide, now_ms) for asker, (name, decide) in zip(askers, asked, strict=True)]

        def forget_all() -> None:
            for each in forget:
                each()

        task.forget = forget_all

    def _ask(
        self, asker: PendingRequest, name: str, decide: Callable[[S, int, int], Any], now_ms: int
    ) -> Callable[[], None]:
        """Decide now, or when the shard is loaded; returns how to forget who asked."""
        led = self._find(name)
        if led is None:
            asker.refuse(self.refusal(name))
        elif led.shard.is_loaded:
            token = self._decide_loaded(led, asker, decide, now_ms)
            return lambda: self._forget_token(token)
        elif (wait_ms := self._load_wait_ms()) == 0:
            asker.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            led.until_loaded[asker] = decide
            asker.alarm = self._deadlines.at(
                now_ms + wait_ms, lambda _now: self._refuse(led, asker, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            )
            return lambda: self._forget(led, asker)
        return lambda: None

    def _decide_loaded(
        self, led: HostedShard[S], asker: PendingRequest, decide: Callable[[S, int, int], Any], now_ms: int
    ) -> int:
        token = self._next_token
        self._next_token += 1
        self._tokens[token] = asker
        self._carry_out(led, decide(led.shard, token, now_ms), token, now_ms)
        return token

    def _forget_token(self, token: int) -> None:
        self._tokens.pop(token, None)

    def _forget(self, led: HostedShard[S], asker: PendingRequest) -> None:
        led.until_loaded.pop(self._answered(asker), None)

    def _refuse(self, led: HostedShard[S], asker: PendingRequest, error_code: ErrorCode) -> None:
        """Who waits for the shard to be loaded waits no more."""
        self._forget(led, asker)
        asker.refuse(error_code)

    def _answered(self, asker: PendingRequest) -> PendingRequest:
        """It is about to be answered: no alarm is needed any more."""
        if asker.alarm is not None:
            self._deadlines.cancel(asker.alarm)
            asker.alarm = None
        return asker

    def partitions_deleted(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        """Topics are gone, with all that is kept for them."""
        gone = list(partitions)
        for led in self._led.values():
            if led.shard.is_loaded:
                self._carry_out(led, led.shard.partitions_deleted(gone, now_ms), None, now_ms)

    def _carry_out(self, led: HostedShard[S], decision: Any, token: int | None, now_ms: int) -> None:
        """Append, apply, see to replies and deadlines; then what the shard has to do at once."""
        self._carry_out_one(led, decision, token, now_ms)
        while led.shard.is_loaded and (due_ms := led.shard.deadline_ms()) is not None and due_ms <= AT_ONCE_MS:
            self._carry_out_one(led, led.shard.tick(now_ms), None, now_ms)
        self._set_alarm(led)

    def _carry_out_one(self, led: HostedShard[S], decision: Any, token: int | None, now_ms: int) -> None:
        if decision.records:
            refusal = self._append(led, decision, now_ms)
            if refusal is not ErrorCode.NONE:
                self._append_refused(led, decision, token, refusal, now_ms)
                return
        self._deliver_when_durable(led, decision, token, now_ms)
        self._follow_up(led, decision, now_ms)

    def _append(self, led: HostedShard[S], decision: Any, now_ms: int) -> ErrorCode:
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

    def _append_refused(
        self, led: HostedShard[S], decision: Any, token: int | None, refusal: ErrorCode, now_ms: int
    ) -> None:
        if token is not None:
            asker = self._tokens.pop(token, None)
            if asker is not None:
                self._answered(asker).refuse(refusal)
        self._carry_out_one(led, led.shard.aborted(decision, refusal, now_ms), None, now_ms)

    def _deliver_when_durable(self, led: HostedShard[S], decision: Any, token: int | None, now_ms: int) -> None:
        replies = list(decision.released)
        if token is not None and decision.reply is not None:
            replies.append((token, decision.reply))
        if not replies:
            return
        shown_upto = led.log.log_end_offset if decision.records else self._shown_upto(led, decision)
        if shown_upto is None or led.log.high_watermark >= shown_upto:
            self._reply_all(replies)
            return
        if token is not None and decision.reply is not None:
            self._bound(token, now_ms)
        self._durability.when_durable(led.log, shown_upto, lambda: self._reply_all(replies))

    def _bound(self, token: int, now_ms: int) -> None:
        """A disk that does not answer must not hold a client for ever."""
        asker = self._tokens[token]

        def give_up(_now_ms: int) -> None:
            if self._tokens.pop(token, None) is not None:
                asker.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)

        asker.alarm = self._deadlines.at(now_ms + self._append_timeout_ms, give_up)

    def _reply_all(self, replies: Iterable[tuple[int, object]]) -> None:
        for token, reply in replies:
            self._reply(token, reply)

    def _reply(self, token: int, reply: object) -> None:
        asker = self._tokens.pop(token, None)
        if asker is not None:
            self._answered(asker).answer(reply)

    # Time

    def _set_alarm(self, led: HostedShard[S]) -> None:
        deadline_ms = led.shard.deadline_ms()
        if led.alarm is not None and led.alarm.callback is not None and led.alarm.at_ms == deadline_ms:
            return
        self._cancel(led)
        if deadline_ms is not None:
            led.alarm = self._deadlines.at(deadline_ms, self._ticker(led))

    def _ticker(self, led: HostedShard[S]) -> Callable[[int], None]:
        return lambda now_ms: self._carry_out(led, led.shard.tick(now_ms), None, now_ms)

    def _cancel(self, led: HostedShard[S]) -> None:
        if led.alarm is not None:
            self._deadlines.cancel(led.alarm)
            led.alarm = None
