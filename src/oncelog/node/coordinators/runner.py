"""Drives coordinator shards: leads and resigns them, loads them, decides, appends, applies, and replies once durable.

The common part of groups and transactions; ``group_coordinators`` and ``transaction_coordinators`` are the two.

Invariants:
1. Between a decision and its ``apply`` nothing else happens to the shard: append and apply follow at once.
2. A reply leaves when the decision's records are durable; so does one that shows what earlier records applied.
3. A shard decides nothing before its whole log has been applied. A request that comes earlier waits for that, where the
   kind of coordinator lets it, in order of arrival; then it is refused with COORDINATOR_LOAD_IN_PROGRESS.
4. A shard is hosted in one leader epoch. With another it is resigned and led anew; whatever waited in it is answered
   NOT_COORDINATOR, and what comes back for it later is dropped.

The machines of the shards, and what reads and writes batches of records, are imported for the first shard that is led:
a new cluster has neither groups nor transactions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import LeaderEpoch, Offset, TopicName, TopicPartition
from oncelog.base.invariant import invariant
from oncelog.node.cluster.metadata import CHECK_AGAIN_MS, Metadata
from oncelog.node.coordinators.hosted_shard import D, HostedShard, S
from oncelog.node.coordinators.pending_requests import Decide, PendingRequest, for_each, for_one
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.node.kernel.events import Outbox, Report
from oncelog.node.kernel.tasks import Runnable, Task
from oncelog.node.logs.group_commit import GroupCommit
from oncelog.node.replication.partitions import PartitionManager
from oncelog.records.errors import CorruptBatch
from oncelog.storage.errors import AppendRefused

if TYPE_CHECKING:
    from oncelog.core.controller.image.model import TopicImage
    from oncelog.node.coordinators.loading import ApplyBatch
    from oncelog.storage.log.partition_log import PartitionLog

AT_ONCE_MS: Final = 0
_REFUSALS: Final = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""The answer to a client of the coordinator whose log refuses; UNKNOWN_SERVER_ERROR for the rest, as in Kafka."""


class CoordinatorServices(NamedTuple):
    """The node's parts that both kinds of coordinators stand on."""

    append_timeout_ms: int
    """``offsets.commit.timeout.ms``: how long a reply waits for its records to be durable."""
    deadlines: Deadlines
    runnable: Runnable
    group_commit: GroupCommit
    partitions: PartitionManager
    metadata: Metadata
    outbox: Outbox


class Coordinators(Generic[S, D]):
    """The shards of this broker for one internal topic."""

    topic: TopicName

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

    # The two kinds do each of these in their way

    def _new_shard(self, partition: int, leader_epoch: LeaderEpoch) -> S:
        """An empty shard."""
        raise NotImplementedError

    def _load_wait_ms(self) -> int:
        """Milliseconds that a request may wait for its shard to be loaded; 0: it is refused at once."""
        return 0

    def _replayer(self, shard: S) -> ApplyBatch:
        """Applies a batch of the log to a shard that is being loaded."""
        raise NotImplementedError

    def _write(self, hosted: HostedShard[S], decision: D, now_ms: int) -> None:
        """Append a decision's records and apply them. Raises AppendRefused or OSError; then nothing is changed."""
        from oncelog.node.coordinators.batches import batch_of
        from oncelog.storage.log.append import append_batch

        batch = batch_of(decision.records, now_ms)
        append_batch(self._log(hosted), batch, now_ms=now_ms, leader_epoch=hosted.leader_epoch, internal=True)
        for key, value in decision.records:
            hosted.shard.apply(key, value)

    def _shown_upto(self, hosted: HostedShard[S], decision: D) -> Offset | None:
        """The offset after the last record that a decision without records shows in its reply; None: it shows none
        that could be pending."""
        raise NotImplementedError

    def _follow_up(self, hosted: HostedShard[S], decision: D, now_ms: int) -> None:
        """Do what else a decision calls for, once its records are appended."""

    # Leading and resigning

    def follow(self, topic: TopicImage | None) -> None:
        """Lead and resign shards as the internal topic's partitions are led now; None: the topic does not exist.

        A shard that is led already in the same epoch stays as it is, loaded or loading.
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
        """Load the shard when its log is durable, at once when there is no log yet and so nothing to load."""
        partition = TopicPartition(self.topic, index)
        log = self._open_log(partition) if self._partitions.has_log(partition) else None
        hosted = HostedShard(self._new_shard(index, leader_epoch), partition, leader_epoch, log)
        self._hosted[index] = hosted
        if log is None:
            self._loading.append(hosted)
        else:
            self._load_when_durable(hosted, log)

    def _resign(self, index: int) -> None:
        hosted = self._hosted.pop(index)
        hosted.is_led = False
        self._cancel(hosted)
        for token, reply in hosted.shard.unloaded(self._deadlines.now_ms).released:
            self._reply(hosted, token, reply)
        for pending in list(hosted.until_loaded):
            self._answered(pending).refuse(ErrorCode.NOT_COORDINATOR)
        hosted.until_loaded.clear()
        for pending in hosted.pending.values():  # their records may become durable, but not under this leader
            self._answered(pending).refuse(ErrorCode.NOT_COORDINATOR)
        hosted.pending.clear()

    def _open_log(self, partition: TopicPartition) -> PartitionLog:
        leader_log = self._partitions.leader_log(partition)
        if isinstance(leader_log, ErrorCode):
            invariant(False, "a coordinator's partition is not led here", partition=partition, error=leader_log.name)
            raise AssertionError
        return leader_log.log

    def _log(self, hosted: HostedShard[S]) -> PartitionLog:
        """The shard's log, created when the first record comes."""
        if hosted.log is None:
            hosted.log = self._open_log(hosted.partition)
        return hosted.log

    # Loading

    def _load_when_durable(self, hosted: HostedShard[S], log: PartitionLog) -> None:
        self._group_commit.when_durable(log, log.log_end_offset, partial(self._loading.append, hosted))

    def load_slice(self) -> bool:
        """Apply one slice of a log that is being loaded; True if there is more to do, for requests too."""
        if not self._loading:
            return False
        now_ms = self._deadlines.now_ms
        has_let_in = False
        while self._loading:
            hosted = self._loading[0]
            log = hosted.log
            if log is not None and hosted.is_led:
                try:
                    following = self._apply_slice(hosted, log)
                except CorruptBatch as damage:
                    self._loading.popleft()
                    self._cannot_load(hosted, damage)
                    continue
                if following is not None:
                    hosted.next_offset = following
                    return True
            self._loading.popleft()
            if not hosted.is_led:
                continue
            if log is not None and log.high_watermark < log.log_end_offset:
                self._load_when_durable(hosted, log)  # a marker was written meanwhile
                continue
            self._carry_out(hosted, hosted.shard.loaded(now_ms), None, now_ms)
            waiting = list(hosted.until_loaded)
            hosted.until_loaded.clear()
            has_let_in |= bool(waiting)
            for pending in waiting:
                self._decide_loaded(hosted, self._answered(pending))
        return has_let_in

    def _apply_slice(self, hosted: HostedShard[S], log: PartitionLog) -> Offset | None:
        """Apply the next slice of a shard's log; where to go on, None at the end. Raises CorruptBatch."""
        from oncelog.node.coordinators.loading import apply_slice

        return apply_slice(self._replayer(hosted.shard), log, hosted.next_offset)

    def _cannot_load(self, hosted: HostedShard[S], damage: CorruptBatch) -> None:
        """Let another replica lead, which has the records as they were written. Until one does, requests wait for the
        load, and are refused: a coordinator that knew half of its log would tell old offsets, and forget decisions."""
        at = f"{hosted.partition} at offset {hosted.next_offset}"
        self._outbox.effects.append(Report("error", f"the coordinator's log {at} cannot be read: {damage}"))
        self._partitions.roles.found_damaged(hosted.partition, hosted.next_offset)

    # Asking

    def shards(self) -> Iterable[S]:
        """The loaded shards."""
        return (hosted.shard for hosted in self._hosted.values() if hosted.shard.is_loaded)

    def is_loading(self) -> bool:
        """True while some are not loaded."""
        return any(not hosted.shard.is_loaded for hosted in self._hosted.values())

    def shard_of(self, name: str) -> S | None:
        """The loaded shard that coordinates an id, None when :meth:`refusal` says why not."""
        hosted = self._find(name)
        return hosted.shard if hosted is not None and hosted.shard.is_loaded else None

    def refusal(self, name: str) -> ErrorCode:
        """NONE, or why this broker cannot coordinate the id now."""
        hosted = self._find(name)
        if hosted is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE if hosted.shard.is_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def partition_of(self, name: str) -> TopicPartition | None:
        """The partition of the internal topic that an id belongs to; None while the topic does not exist."""
        if self._partition_count == 0:
            return None
        return TopicPartition(self.topic, coordinator_partition(name, self._partition_count))

    def _find(self, name: str) -> HostedShard[S] | None:
        partition = self.partition_of(name)
        return None if partition is None else self._hosted.get(partition.partition)

    # Deciding

    def decide(self, task: Task, name: str, decide: Decide) -> None:
        """Let a request decide in the shard of ``name``."""
        pending = for_one(task, self._runnable, name, decide)
        self.ask(pending)
        task.forget = partial(self.forget, [pending])

    def decide_each(self, task: Task, asked: Sequence[tuple[str, Decide]]) -> None:
        """Let a request decide in several shards, or several times in one; it goes on when all have answered."""
        pending = for_each(task, self._runnable, asked)
        for each in pending:
            self.ask(each)
        task.forget = partial(self.forget, pending)

    def ask(self, pending: PendingRequest) -> None:
        """Decide now, or when the shard is loaded; refuse where this broker has no such shard."""
        hosted = self._find(pending.name)
        if hosted is None:
            pending.refuse(self.refusal(pending.name))
        elif hosted.shard.is_loaded:
            self._decide_loaded(hosted, pending)
        elif (wait_ms := self._load_wait_ms()) == 0:
            pending.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            hosted.until_loaded[pending] = None
            pending.alarm = self._deadlines.at(
                self._deadlines.now_ms + wait_ms, lambda _now: self._give_up_loading(hosted, pending)
            )

    def forget(self, requests: Iterable[PendingRequest]) -> None:
        """Drop requests whose client is gone; what they decided stays decided."""
        for pending in requests:
            hosted = self._find(pending.name)
            if hosted is None:
                continue
            if pending.token is not None:
                hosted.pending.pop(pending.token, None)
            elif pending in hosted.until_loaded:
                del hosted.until_loaded[self._answered(pending)]

    def _decide_loaded(self, hosted: HostedShard[S], pending: PendingRequest) -> None:
        token = pending.token = self._next_token
        self._next_token += 1
        hosted.pending[token] = pending
        now_ms = self._deadlines.now_ms
        self._carry_out(hosted, pending.decide(hosted.shard, token, now_ms), token, now_ms)

    def _give_up_loading(self, hosted: HostedShard[S], pending: PendingRequest) -> None:
        hosted.until_loaded.pop(self._answered(pending), None)
        pending.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def _answered(self, pending: PendingRequest) -> PendingRequest:
        """Cancel the alarm of a request that is about to be answered."""
        if pending.alarm is not None:
            self._deadlines.cancel(pending.alarm)
            pending.alarm = None
        return pending

    def partitions_deleted(self, gone: Sequence[TopicPartition]) -> None:
        """Topics are gone, with all that is kept for them."""
        now_ms = self._deadlines.now_ms
        for hosted in self._hosted.values():
            if hosted.shard.is_loaded:
                self._carry_out(hosted, hosted.shard.partitions_deleted(gone, now_ms), None, now_ms)

    def _carry_out(self, hosted: HostedShard[S], decision: D, token: int | None, now_ms: int) -> None:
        """Append, apply, see to replies and deadlines; then what the shard has to do at once."""
        self._carry_out_one(hosted, decision, token, now_ms)
        shard = hosted.shard
        due_ms = shard.deadline_ms()
        while shard.is_loaded and due_ms is not None and due_ms <= AT_ONCE_MS:
            self._carry_out_one(hosted, shard.tick(now_ms), None, now_ms)
            due_ms = shard.deadline_ms()
        self._set_alarm(hosted, due_ms)

    def _carry_out_one(self, hosted: HostedShard[S], decision: D, token: int | None, now_ms: int) -> None:
        if decision.records:
            refusal = self._append(hosted, decision, now_ms)
            if refusal is not ErrorCode.NONE:
                self._append_refused(hosted, decision, token, refusal, now_ms)
                return
        self._deliver_when_durable(hosted, decision, token, now_ms)
        self._follow_up(hosted, decision, now_ms)

    def _append(self, hosted: HostedShard[S], decision: D, now_ms: int) -> ErrorCode:
        try:
            self._write(hosted, decision, now_ms)
        except AppendRefused as refused:
            return self._error_for_client(refused.error_code)
        except OSError:
            return ErrorCode.NOT_COORDINATOR
        self._group_commit.appended(self._log(hosted))
        return ErrorCode.NONE

    def _error_for_client(self, error_code: ErrorCode) -> ErrorCode:
        """The answer to a client of the coordinator when the log refuses."""
        return _REFUSALS.get(error_code, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _append_refused(
        self, hosted: HostedShard[S], decision: D, token: int | None, refusal: ErrorCode, now_ms: int
    ) -> None:
        if token is not None:
            pending = hosted.pending.pop(token, None)
            if pending is not None:
                self._answered(pending).refuse(refusal)
        self._carry_out_one(hosted, hosted.shard.append_failed(decision, refusal, now_ms), None, now_ms)

    # Replying

    def _deliver_when_durable(self, hosted: HostedShard[S], decision: D, token: int | None, now_ms: int) -> None:
        replies = list(decision.released)
        if token is not None and decision.reply is not None:
            replies.append((token, decision.reply))
        if not replies:
            return
        shown_upto = self._log(hosted).log_end_offset if decision.records else self._shown_upto(hosted, decision)
        if shown_upto is None or self._log(hosted).high_watermark >= shown_upto:
            self._reply_all(hosted, replies)
            return
        if token is not None and decision.reply is not None:
            self._bound(hosted, token, now_ms)
        self._group_commit.when_durable(self._log(hosted), shown_upto, partial(self._reply_all, hosted, replies))

    def _bound(self, hosted: HostedShard[S], token: int, now_ms: int) -> None:
        """A disk that does not answer must not hold a client for ever."""
        pending = hosted.pending[token]

        def give_up(_now_ms: int) -> None:
            if hosted.pending.pop(token, None) is not None:
                pending.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)

        pending.alarm = self._deadlines.at(now_ms + self._append_timeout_ms, give_up)

    def _reply_all(self, hosted: HostedShard[S], replies: Iterable[tuple[int, object]]) -> None:
        for token, reply in replies:
            self._reply(hosted, token, reply)

    def _reply(self, hosted: HostedShard[S], token: int, reply: object) -> None:
        pending = hosted.pending.pop(token, None)
        if pending is not None:
            self._answered(pending).answer(reply)

    # Time

    def _set_alarm(self, hosted: HostedShard[S], deadline_ms: int | None) -> None:
        alarm = hosted.alarm
        if alarm is not None and alarm.callback is not None and alarm.at_ms == deadline_ms:
            return
        self._cancel(hosted)
        if deadline_ms is not None:
            hosted.alarm = self._deadlines.at(deadline_ms, self._ticker(hosted))

    def _ticker(self, hosted: HostedShard[S]) -> Callable[[int], None]:
        return lambda now_ms: self._tick(hosted, now_ms)

    def _tick(self, hosted: HostedShard[S], now_ms: int) -> None:
        if self._metadata.requests_wait:
            hosted.alarm = self._deadlines.at(now_ms + CHECK_AGAIN_MS, self._ticker(hosted))
        else:
            self._carry_out(hosted, hosted.shard.tick(now_ms), None, now_ms)

    def _cancel(self, hosted: HostedShard[S]) -> None:
        if hosted.alarm is not None:
            self._deadlines.cancel(hosted.alarm)
            hosted.alarm = None
