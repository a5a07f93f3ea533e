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
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import LeaderEpoch, Offset, TopicName, TopicPartition
from oncelog.base.invariant import invariant
from oncelog.handlers.broker.context import CoordinatorRefusal
from oncelog.node.cluster.metadata import CHECK_AGAIN_MS, Metadata
from oncelog.node.kernel.deadlines import Alarm, Deadlines
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


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request that waits for one decision: first for its shard to be loaded, then for the reply."""

    name: str
    """The group or transactional id that it is about."""
    wait: Any
    """The request, as its handler has put it: ``Coordinate`` or ``Transact``."""
    answer: Callable[[Any], None]
    """Takes the reply, or a CoordinatorRefusal."""
    token: int | None = None
    """The token by which the reply is released, once its shard has decided."""
    alarm: Alarm | None = None


class ShardDecision(Protocol):
    """The common part of both kinds of decisions."""

    @property
    def records(self) -> Sequence[tuple[bytes, bytes | None]]:
        """Keys and values to append as one batch and to apply."""

    @property
    def reply(self) -> object | None:
        """The reply to the request decided; None: it is parked, or nobody asked."""

    @property
    def released(self) -> Sequence[tuple[int, object]]:
        """Replies to requests that were parked, by token."""


class Shard(Protocol):
    """The common part of both kinds of shards; each has its own kind of ``ShardDecision``."""

    is_loaded: bool

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Take over one record of the log."""

    def loaded(self, now_ms: int) -> Any:
        """Begin to decide: the whole log has been applied."""

    def unloaded(self, now_ms: int) -> Any:
        """Decide no more: another broker leads the partition; the decision releases all who are parked."""

    def append_failed(self, decision: Any, error_code: ErrorCode, now_ms: int) -> Any:
        """Take back a decision whose records were refused."""

    def partitions_deleted(self, partitions: Any, now_ms: int) -> Any:
        """Forget partitions of topics that are gone."""

    def deadline_ms(self) -> int | None:
        """Time of the next tick; None: never."""

    def tick(self, now_ms: int) -> Any:
        """Do one thing that is due."""


S = TypeVar("S", bound=Shard)
D = TypeVar("D", bound=ShardDecision)
"""The decisions of the shards."""


@dataclass(slots=True, eq=False)
class HostedShard(Generic[S]):
    """A shard that this broker leads in one epoch."""

    shard: S
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    log: PartitionLog | None
    """None as long as the internal topic's log is still to be created: then there is nothing to load."""
    next_offset: Offset
    """Offset at which loading goes on."""
    is_led: bool = True
    """False once this broker has resigned: what was under way for it is dropped when it comes back."""
    until_loaded: dict[PendingRequest, None] = field(default_factory=dict)
    """Requests that decide when the shard is loaded, in order of arrival."""
    pending: dict[int, PendingRequest] = field(default_factory=dict)
    """Requests that wait for their reply, by token."""
    alarm: Alarm | None = None


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
        raise NotImplementedError

    def _decide(self, shard: S, wait: Any, token: int, now_ms: int) -> D:
        """The decision of a loaded shard about a request."""
        raise NotImplementedError

    def _load_wait_ms(self) -> int:
        """Milliseconds that a request may wait for its shard to be loaded; 0: it is refused at once."""
        return 0

    def _replayer(self, shard: S) -> ApplyBatch:
        """Applies a batch of the log to a shard that is being loaded."""
        raise NotImplementedError

    def _write(self, hosted: HostedShard[S], decision: D, now_ms: int) -> None:
        """Append a decision's records and apply them. Raises AppendRefused or OSError; then nothing is changed."""
        from oncelog.node.coordinators.log_batches import batch_of
        from oncelog.storage.log.append import append_batch

        batch = batch_of(decision.records, now_ms)
        append_batch(self._log(hosted), batch, now_ms=now_ms, leader_epoch=hosted.leader_epoch, internal=True)
        for key, value in decision.records:
            hosted.shard.apply(key, value)

    def _visible_end_offset(self, hosted: HostedShard[S], decision: D) -> Offset | None:
        """The end of the records that a decision without records shows in its reply; None: none could be pending."""
        raise NotImplementedError

    def _follow_up(self, hosted: HostedShard[S], decision: D, now_ms: int) -> None:
        """Do what else a decision calls for, once its records are appended."""

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
        start_offset = Offset(0) if log is None else log.log_start_offset
        hosted = HostedShard(self._new_shard(index, leader_epoch), partition, leader_epoch, log, start_offset)
        self._hosted[index] = hosted
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
        """The shard's log, created when the first record comes."""
        if hosted.log is None:
            hosted.log = self._open_log(hosted.partition)
        return hosted.log

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
                self._cancel_alarm(pending)
                self._decide_loaded(hosted, pending)
        return has_let_in

    def _apply_slice(self, hosted: HostedShard[S], log: PartitionLog) -> Offset | None:
        """Apply the next slice of a shard's log; where to go on, None at the end. Raises CorruptBatch."""
        from oncelog.node.coordinators.log_batches import apply_slice

        return apply_slice(self._replayer(hosted.shard), log, hosted.next_offset)

    def _cannot_load(self, hosted: HostedShard[S], damage: CorruptBatch) -> None:
        """Let another replica lead, which has the records as they were written. Until one does, requests wait for the
        load, and are refused: a coordinator that knew half of its log would tell old offsets, and forget decisions."""
        at = f"{hosted.partition} at offset {hosted.next_offset}"
        self._outbox.effects.append(Report("error", f"the coordinator's log {at} cannot be read: {damage}"))
        self._partitions.roles.report_damage(hosted.partition, hosted.next_offset)

    def shards(self) -> Iterable[S]:
        return (hosted.shard for hosted in self._hosted.values() if hosted.shard.is_loaded)

    def is_loading(self) -> bool:
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

    def decide(self, task: Task, name: str, wait: Any) -> None:
        """Let a request decide in the shard of ``name``."""
        pending = PendingRequest(name, wait, partial(self._resume, task))
        self.ask(pending)
        task.forget = partial(self.forget, [pending])

    def _resume(self, task: Task, reply: object) -> None:
        """Wake ``task`` with the reply, or raise the refusal in it."""
        if isinstance(reply, CoordinatorRefusal):
            self._runnable.wake(task, error=reply)
        else:
            self._runnable.wake(task, reply)

    def ask(self, pending: PendingRequest) -> None:
        """Decide now, or when the shard is loaded; refuse where this broker has no such shard."""
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

    def forget(self, requests: Iterable[PendingRequest]) -> None:
        """Drop requests whose client is gone; what they decided stays decided."""
        for pending in requests:
            hosted = self._find(pending.name)
            if hosted is None:
                continue
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
            self._reply(hosted, token, CoordinatorRefusal(refusal))
        self._carry_out_one(hosted, hosted.shard.append_failed(decision, refusal, now_ms), None, now_ms)

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
                # A disk that does not answer must not hold a client for ever, nor one that waited for this decision.
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
        if self._metadata.requests_postponed:
            hosted.alarm = self._deadlines.at(now_ms + CHECK_AGAIN_MS, partial(self._tick, hosted))
        else:
            self._carry_out(hosted, hosted.shard.tick(now_ms), None, now_ms)

    def _cancel_alarm(self, owner: HostedShard[S] | PendingRequest) -> None:
        if owner.alarm is not None:
            self._deadlines.cancel(owner.alarm)
            owner.alarm = None
