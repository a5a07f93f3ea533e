"""Drives coordinator shards, of groups and of transactions: leads, loads and resigns them; decides, appends, applies,
and replies once durable. Invariants:

1. Nothing happens to a shard between a decision and its ``apply``: append and apply follow at once.
2. A reply leaves when the decision's records are durable, or the earlier records whose effect it shows.
3. A shard decides nothing before its whole log is applied. Earlier requests wait in order, as long as the kind of
   coordinator allows, then are refused with COORDINATOR_LOAD_IN_PROGRESS.
4. A shard is hosted in one leader epoch. In another it is resigned and led again: waiting requests are answered
   NOT_COORDINATOR, and later completions for it are dropped.
"""

# Machines of shards and the code for batches are imported for the first shard that is led: a new cluster has neither
# groups nor transactions.

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import LeaderEpoch, Offset, TopicName, TopicPartition
from oncelog.base.invariant import invariant
from oncelog.handlers.broker.context import CoordinatorRefusal
from oncelog.node.cluster.metadata import CHECK_AGAIN_MS, Metadata
from oncelog.node.coordinators.hosted_shards import HostedShard, PendingRequest, S, ShardDecision
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.node.kernel.events import Outbox, Report
from oncelog.node.kernel.tasks import Runnable, Task
from oncelog.node.logs.group_commit import GroupCommit
from oncelog.node.replication.partitions import PartitionManager
from oncelog.records.errors import CorruptBatch
from oncelog.storage.errors import AppendRefused

if TYPE_CHECKING:
    from oncelog.core.controller.image.model import TopicImage
    from oncelog.node.coordinators.log_batches import ApplyBatch
    from oncelog.storage.log.partition_log import PartitionLog


D = TypeVar("D", bound=ShardDecision)

AT_ONCE_MS: Final = 0
_SKIPPED_REASONS: Final = 5  # in a report
TOO_LARGE_AGAIN_MS: Final = 600_000
MAX_TOO_LARGE: Final = 100
"""Names that are reported within this time."""
# Answers to clients when the log refuses; UNKNOWN_SERVER_ERROR for all other errors, as in Kafka.
_REFUSALS: Final = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}


class CoordinatorServices(NamedTuple):
    """Parts of the node that both kinds of coordinators use."""

    append_timeout_ms: int
    """``offsets.commit.timeout.ms``: how long a reply waits for its records to become durable."""
    deadlines: Deadlines
    runnable: Runnable
    group_commit: GroupCommit
    partitions: PartitionManager
    metadata: Metadata
    outbox: Outbox


class Coordinators(Generic[S, D]):
    """This broker's shards of one internal topic."""

    topic: TopicName
    subject: str
    remedy: str
    """The way out, besides a larger ``max.message.bytes``, when an id's records are too large."""

    def __init__(self, services: CoordinatorServices) -> None:
        self._append_timeout_ms = services.append_timeout_ms
        self._metadata = services.metadata
        self._deadlines = services.deadlines
        self._runnable = services.runnable
        self._group_commit = services.group_commit
        self._partitions = services.partitions
        self._outbox = services.outbox
        self._hosted: dict[int, HostedShard[S]] = {}
        self._partition_count = 0
        self._loading: deque[HostedShard[S]] = deque()
        self._next_token = 1
        # Names whose records were too large for the log, and when that was reported.
        self._too_large: dict[str, int] = {}

    # Each kind of coordinator implements the following.

    def _new_shard(self, partition: int, leader_epoch: LeaderEpoch) -> S:
        raise NotImplementedError

    def _decide(self, shard: S, wait: Any, token: int, now_ms: int) -> D:
        raise NotImplementedError

    def _load_wait_ms(self) -> int:
        """How long a request may wait for its shard to load; 0: it is refused at once."""
        return 0

    def _replayer(self, shard: S) -> ApplyBatch:
        """Applies batches of the log to a shard that is loading."""
        raise NotImplementedError

    def _write(self, hosted: HostedShard[S], decision: D, now_ms: int) -> None:
        """Append a decision's records and apply them. Raises AppendRefused or OSError; then nothing has changed."""
        from oncelog.node.coordinators.log_batches import batch_of
        from oncelog.storage.log.append import append_batch

        log, batch = self._log(hosted), batch_of(decision.records, now_ms)
        base_offset = log.log_end_offset
        append_batch(log, batch, now_ms=now_ms, leader_epoch=hosted.leader_epoch, internal=True)
        self._apply(hosted.shard, decision, base_offset)

    def _apply(self, shard: S, decision: D, base_offset: Offset) -> None:
        for key, value in decision.records:
            shard.apply(key, value)

    def _visible_end_offset(self, hosted: HostedShard[S], decision: D) -> Offset | None:
        """The end of the records whose effect a decision without records shows in its reply; None: all are durable."""
        raise NotImplementedError

    def _follow_up(self, hosted: HostedShard[S], decision: D, now_ms: int) -> None:
        """Do what else a decision requires once its records are appended."""

    def follow(self, topic: TopicImage | None) -> None:
        """Lead and resign shards as the internal topic's partitions are led now; None: there is no topic. A shard led
        in the same epoch stays as it is.
        """
        partitions = () if topic is None else topic.partitions
        for index in [index for index in self._hosted if index >= len(partitions)]:
            self._resign(index)
        self._partition_count = len(partitions)
        for index, partition in enumerate(partitions):
            hosted = self._hosted.get(index)
            leads = self._partitions.roles.leads(partition)
            if hosted is not None and not (leads and hosted.leader_epoch == partition.leader_epoch):
                self._resign(index)
                hosted = None
            if leads and hosted is None:
                self._lead(index, partition.leader_epoch)

    def _lead(self, index: int, leader_epoch: LeaderEpoch) -> None:
        partition = TopicPartition(self.topic, index)
        log = self._open_log(partition) if self._partitions.has_log(partition) else None
        start_offset = Offset(0) if log is None else log.log_start_offset
        hosted = HostedShard(self._new_shard(index, leader_epoch), partition, leader_epoch, log, start_offset)
        self._hosted[index] = hosted
        # Without a log there is nothing to load; otherwise the log must be durable before it is applied.
        if log is None:
            self._loading.append(hosted)
        else:
            self._load_when_durable(hosted, log)

    def _resign(self, index: int) -> None:
        hosted = self._hosted.pop(index)
        hosted.is_led = False
        self._cancel_alarm(hosted)
        self._reply_all(hosted, hosted.shard.unloaded(self._deadlines.now_ms).released)
        for pending in list(hosted.until_loaded):
            self._refuse(pending, ErrorCode.NOT_COORDINATOR)
        hosted.until_loaded.clear()
        for pending in hosted.pending.values():  # their records may become durable, but not under this leader
            self._refuse(pending, ErrorCode.NOT_COORDINATOR)
        hosted.pending.clear()

    def _open_log(self, partition: TopicPartition) -> PartitionLog:
        leader_log = self._partitions.leader_log(partition)
        if isinstance(leader_log, ErrorCode):
            invariant(False, "a coordinator's partition is not led here", partition=partition, error=leader_log.name)
            raise AssertionError
        return leader_log.log

    def _log(self, hosted: HostedShard[S]) -> PartitionLog:
        """The shard's log, created when its first record is appended."""
        if hosted.log is None:
            hosted.log = self._open_log(hosted.partition)
        return hosted.log

    def _load_when_durable(self, hosted: HostedShard[S], log: PartitionLog) -> None:
        self._group_commit.when_durable(log, log.log_end_offset, partial(self._loading.append, hosted))

    def load_slice(self) -> bool:
        """Apply one slice of a log that is loading; True if more slices or newly admitted requests are due."""
        if not self._loading:
            return False
        now_ms = self._deadlines.now_ms
        has_admitted = False
        while self._loading:
            hosted = self._loading[0]
            log = hosted.log
            if log is not None and hosted.is_led:
                try:
                    next_offset = self._apply_slice(hosted, log)
                except CorruptBatch as damage:
                    self._loading.popleft()
                    self._load_failed(hosted, damage)
                    continue
                if next_offset is not None:
                    hosted.next_offset = next_offset
                    return True
            self._loading.popleft()
            if not hosted.is_led:
                continue
            if log is not None and log.high_watermark < log.log_end_offset:
                self._load_when_durable(hosted, log)  # a marker was appended during the load
                continue
            self._report_skipped(hosted)
            self._carry_out(hosted, hosted.shard.loaded(now_ms), None, now_ms)
            waiting = list(hosted.until_loaded)
            hosted.until_loaded.clear()
            has_admitted |= bool(waiting)
            for pending in waiting:
                self._cancel_alarm(pending)
                self._decide_loaded(hosted, pending)
        return has_admitted

    def _apply_slice(self, hosted: HostedShard[S], log: PartitionLog) -> Offset | None:
        """Apply the next slice of a shard's log; returns the next offset, None at the end. Raises CorruptBatch."""
        from oncelog.node.coordinators.log_batches import apply_slice

        return apply_slice(self._replayer(hosted.shard), log, hosted.next_offset)

    def _report_skipped(self, hosted: HostedShard[S]) -> None:
        skipped = hosted.shard.skipped
        if skipped:
            reasons = "; ".join(f"{count} × {reason}" for reason, count in skipped.most_common(_SKIPPED_REASONS))
            message = (
                f"{skipped.total()} records of {hosted.partition} cannot be read and are passed over ({reasons}): a "
                f"later version of oncelog may have written them; start this broker with that version"
            )
            self._outbox.effects.append(Report("error", message))

    def _load_failed(self, hosted: HostedShard[S], damage: CorruptBatch) -> None:
        """Hand the partition to another replica, which has the undamaged records."""
        position = f"{hosted.partition} at offset {hosted.next_offset}"
        self._outbox.effects.append(Report("error", f"the coordinator's log {position} cannot be read: {damage}"))
        # Until then requests wait or are refused: a coordinator that knows half of its log would answer old offsets and
        # forget decisions.
        self._partitions.roles.report_damage(hosted.partition, hosted.next_offset)

    def shards(self) -> Iterable[S]:
        return (hosted.shard for hosted in self._hosted.values() if hosted.shard.is_loaded)

    def is_loading(self) -> bool:
        return any(not hosted.shard.is_loaded for hosted in self._hosted.values())

    def shard_of(self, name: str) -> S | None:
        """The loaded shard that coordinates an id; None if :meth:`refusal` has an error."""
        hosted = self._find(name)
        return hosted.shard if hosted is not None and hosted.shard.is_loaded else None

    def refusal(self, name: str) -> ErrorCode:
        """NONE, or the reason why this broker cannot coordinate the id now."""
        hosted = self._find(name)
        if hosted is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE if hosted.shard.is_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def partition_of(self, name: str) -> TopicPartition | None:
        """The internal topic's partition for an id; None while the topic does not exist."""
        if self._partition_count == 0:
            return None
        return TopicPartition(self.topic, coordinator_partition(name, self._partition_count))

    def _find(self, name: str) -> HostedShard[S] | None:
        partition = self.partition_of(name)
        return None if partition is None else self._hosted.get(partition.partition)

    def decide(self, task: Task, name: str, wait: Any) -> None:
        task.forget = self.ask(name, wait, partial(self._resume, task))

    def decide_each(self, task: Task, waits: Iterable[tuple[str, Any]]) -> None:
        """Let several requests of one task, each with the name that it is about, be decided independently."""
        requests = list(waits)
        answers: list[object] = [None] * len(requests)
        missing = set(range(len(requests)))

        def answered(index: int, reply: object) -> None:
            answers[index] = reply
            missing.discard(index)
            if not missing:
                self._runnable.wake(task, answers)

        cancels = [self.ask(name, wait, partial(answered, index)) for index, (name, wait) in enumerate(requests)]
        task.forget = lambda: [cancel() for cancel in cancels]

    def ask(self, name: str, wait: Any, on_answer: Callable[[Any], None]) -> Callable[[], None]:
        """Submit a request; returns what forgets it."""
        pending = PendingRequest(name, wait, on_answer)
        self.submit(pending)
        return partial(self._forget, pending)

    def _resume(self, task: Task, reply: object) -> None:
        """Wake ``task`` with the reply, or with the refusal raised."""
        if isinstance(reply, CoordinatorRefusal):
            self._runnable.wake(task, error=reply)
        else:
            self._runnable.wake(task, reply)

    def submit(self, pending: PendingRequest) -> None:
        """Decide now, or when the shard is loaded; refuse if this broker has no such shard."""
        hosted = self._find(pending.name)
        if hosted is None:
            self._refuse(pending, ErrorCode.NOT_COORDINATOR)
        elif hosted.shard.is_loaded:
            self._decide_loaded(hosted, pending)
        elif (wait_ms := self._load_wait_ms()) == 0:
            self._refuse(pending, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            hosted.until_loaded[pending] = None
            give_up = partial(self._give_up_loading, hosted, pending)
            pending.alarm = self._deadlines.at(self._deadlines.now_ms + wait_ms, give_up)

    def _forget(self, pending: PendingRequest) -> None:
        """Drop a request whose client has disconnected; its decision stands."""
        hosted = self._find(pending.name)
        if hosted is None:
            return
        if pending.token is not None:
            hosted.pending.pop(pending.token, None)
        elif pending in hosted.until_loaded:
            self._cancel_alarm(pending)
            del hosted.until_loaded[pending]

    def _decide_loaded(self, hosted: HostedShard[S], pending: PendingRequest) -> None:
        token = pending.token = self._next_token
        self._next_token += 1
        hosted.pending[token] = pending
        now_ms = self._deadlines.now_ms
        self._carry_out(hosted, self._decide(hosted.shard, pending.wait, token, now_ms), token, now_ms)

    def _give_up_loading(self, hosted: HostedShard[S], pending: PendingRequest, _now_ms: int) -> None:
        hosted.until_loaded.pop(pending, None)
        self._refuse(pending, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def partitions_deleted(self, gone: Sequence[TopicPartition]) -> None:
        now_ms = self._deadlines.now_ms
        for hosted in self._hosted.values():
            if hosted.shard.is_loaded:
                self._carry_out(hosted, hosted.shard.partitions_deleted(gone, now_ms), None, now_ms)

    def _carry_out(self, hosted: HostedShard[S], decision: D, token: int | None, now_ms: int) -> None:
        """Append, apply, arrange replies and deadlines; then run the ticks that are due at once."""
        self._carry_out_decision(hosted, decision, token, now_ms)
        shard = hosted.shard
        due_ms = shard.deadline_ms()
        while shard.is_loaded and due_ms is not None and due_ms <= AT_ONCE_MS:
            self._carry_out_decision(hosted, shard.tick(now_ms), None, now_ms)
            due_ms = shard.deadline_ms()
        self._set_alarm(hosted, due_ms)

    def _carry_out_decision(self, hosted: HostedShard[S], decision: D, token: int | None, now_ms: int) -> None:
        if decision.records:
            refusal = self._append(hosted, decision, token, now_ms)
            if refusal is not ErrorCode.NONE:
                self._append_refused(hosted, decision, token, refusal, now_ms)
                return
        self._deliver_when_durable(hosted, decision, token, now_ms)
        self._follow_up(hosted, decision, now_ms)

    def _append(self, hosted: HostedShard[S], decision: D, token: int | None, now_ms: int) -> ErrorCode:
        try:
            self._write(hosted, decision, now_ms)
        except AppendRefused as refused:
            if refused.error_code is ErrorCode.MESSAGE_TOO_LARGE:
                pending = None if token is None else hosted.pending.get(token)
                self._report_too_large(hosted, decision, refused, "" if pending is None else pending.name, now_ms)
            return self._error_for_client(refused.error_code)
        except OSError:
            return ErrorCode.NOT_COORDINATOR
        self._group_commit.appended(self._log(hosted))
        return ErrorCode.NONE

    def _report_too_large(
        self, hosted: HostedShard[S], decision: D, refused: AppendRefused, name: str, now_ms: int
    ) -> None:
        # Clients try again every few seconds, and only get UNKNOWN_SERVER_ERROR.
        reported = {other: at_ms for other, at_ms in self._too_large.items() if now_ms - at_ms < TOO_LARGE_AGAIN_MS}
        if name not in reported and len(reported) < MAX_TOO_LARGE:
            reported[name] = now_ms
            largest = max(len(key) + len(value or b"") for key, value in decision.records)
            self._outbox.effects.append(
                Report(
                    "error",
                    f"{self.subject} {name!r} stays as it is: {refused.message} Of its {len(decision.records)} records "
                    f"the largest has {largest} bytes. {self.remedy} Or raise max.message.bytes of {self.topic}.",
                )
            )
        self._too_large = reported

    def _error_for_client(self, error_code: ErrorCode) -> ErrorCode:
        return _REFUSALS.get(error_code, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _append_refused(
        self, hosted: HostedShard[S], decision: D, token: int | None, refusal: ErrorCode, now_ms: int
    ) -> None:
        if token is not None:
            self._reply(hosted, token, CoordinatorRefusal(refusal))
        self._carry_out_decision(hosted, hosted.shard.append_failed(decision, refusal, now_ms), None, now_ms)

    def _deliver_when_durable(self, hosted: HostedShard[S], decision: D, token: int | None, now_ms: int) -> None:
        replies = list(decision.released)
        if token is not None and decision.reply is not None:
            replies.append((token, decision.reply))
        if not replies:
            return
        visible_end = (
            self._log(hosted).log_end_offset if decision.records else self._visible_end_offset(hosted, decision)
        )
        if visible_end is None or self._log(hosted).high_watermark >= visible_end:
            self._reply_all(hosted, replies)
            return
        for waiting, _ in replies:
            if waiting in hosted.pending:
                # A disk that hangs must not hold these clients for ever.
                give_up = partial(self._give_up_append, hosted, waiting)
                hosted.pending[waiting].alarm = self._deadlines.at(now_ms + self._append_timeout_ms, give_up)
        self._group_commit.when_durable(self._log(hosted), visible_end, partial(self._reply_all, hosted, replies))

    def _give_up_append(self, hosted: HostedShard[S], token: int, _now_ms: int) -> None:
        self._reply(hosted, token, CoordinatorRefusal(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def _reply_all(self, hosted: HostedShard[S], replies: Iterable[tuple[int, object]]) -> None:
        for token, reply in replies:
            self._reply(hosted, token, reply)

    def _reply(self, hosted: HostedShard[S], token: int, reply: object) -> None:
        pending = hosted.pending.pop(token, None)
        if pending is not None:
            self._answer(pending, reply)

    def _answer(self, pending: PendingRequest, reply: object) -> None:
        self._cancel_alarm(pending)
        pending.answer(reply)

    def _refuse(self, pending: PendingRequest, error_code: ErrorCode) -> None:
        self._answer(pending, CoordinatorRefusal(error_code))

    def _set_alarm(self, hosted: HostedShard[S], deadline_ms: int | None) -> None:
        alarm = hosted.alarm
        if alarm is not None and alarm.callback is not None and alarm.at_ms == deadline_ms:
            return
        self._cancel_alarm(hosted)
        if deadline_ms is not None:
            hosted.alarm = self._deadlines.at(deadline_ms, partial(self._tick, hosted))

    def _tick(self, hosted: HostedShard[S], now_ms: int) -> None:
        # Members whose heartbeats are postponed must not time out.
        if self._metadata.requests_postponed:
            hosted.alarm = self._deadlines.at(now_ms + CHECK_AGAIN_MS, partial(self._tick, hosted))
        else:
            self._carry_out(hosted, hosted.shard.tick(now_ms), None, now_ms)

    def _cancel_alarm(self, owner: HostedShard[S] | PendingRequest) -> None:
        if owner.alarm is not None:
            self._deadlines.cancel(owner.alarm)
            owner.alarm = None
