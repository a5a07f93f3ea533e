"""The share partitions that this broker leads (KIP-932), with the sessions of the members that fetch from them.

The rules:

1. A share partition is read from its coordinator at the first fetch and lives in one leader epoch. The coordinator
   refuses writes of older epochs, so no acknowledgement is answered by a former leader once a new one has read. In the
   same epoch the read waits for the writes that are still on their way.
2. An acknowledgement is answered when its state is durable at the coordinator; a refused one has changed nothing.
3. It is dropped with the leadership, the topic, the last session of its group, or a write that the coordinator fences.
   Locks and delivery counts in memory are lost then; the records come again.
4. When a member adds it to its session, the coordinator is asked whether the state is still the one in memory:
   administrators change and delete the state of a group without members, whose connections may be open all the same.
5. One deadline of a share partition watches over all its locks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId, Offset, TopicPartition
from oncelog.core.controller.brokers.features import SHARE_VERSION
from oncelog.core.share.errors import InvalidShareState, client_error
from oncelog.core.share.model import Acknowledgement, DeadLetters, Refusal, ShareSettings, ShareState
from oncelog.core.share.partition import SharePartition
from oncelog.core.share.sessions import PartitionKey, SessionKey, ShareSession, ShareSessions
from oncelog.core.share.transitions import StateWrite
from oncelog.core.share_state.model import ShareKey
from oncelog.handlers.broker.shares import NOT_LEADER, UNKNOWN_PARTITION, LedSharePartition, PendingAcknowledgement
from oncelog.node.share.counters import ShareCounters
from oncelog.node.share.led_partitions import LedPartitions
from oncelog.node.share.loading import StateLoader
from oncelog.node.share.session_releases import PARTITIONS_PER_SLICE, PAUSE_MS, SessionReleases

if TYPE_CHECKING:
    from oncelog.core.controller.image.cluster_image import ImageDelta
    from oncelog.core.groups.share.settings import ShareGroupSettings
    from oncelog.handlers.broker.waits import FetchKey, UntilAcknowledged
    from oncelog.node.cluster.group_settings import ShareSettingsOfGroups
    from oncelog.node.cluster.metadata import Metadata
    from oncelog.node.kernel.deadlines import Alarm, Deadlines
    from oncelog.node.kernel.tasks import Runnable, Task
    from oncelog.node.logs.delayed_fetches import DelayedFetches
    from oncelog.node.logs.group_commit import GroupCommit
    from oncelog.node.replication.partitions import PartitionManager
    from oncelog.node.share.dead_letters import DeadLetterWriter
    from oncelog.node.share.persister import Persisted, SharePersister, StateSummary

MOST: Final = 10_000
"""Share partitions of all groups together."""
_DROPS_PER_SLICE: Final = 500
# The state in memory is no longer the coordinator's: the next fetch reads it again, here or at the next leader.
_FENCING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class SharePartitions:
    """Implements ``handlers.broker.shares.Shares``."""

    def __init__(
        self,
        metadata: Metadata,
        partitions: PartitionManager,
        group_commit: GroupCommit,
        delayed_fetches: DelayedFetches,
        deadlines: Deadlines,
        runnable: Runnable,
        persister: SharePersister,
        settings: ShareSettingsOfGroups,
        dead_letters: DeadLetterWriter,
    ) -> None:
        self._metadata = metadata
        self._settings_basis: tuple[object, object] = (None, None)
        """The image and the config that ``_settings_of_groups`` were computed from."""
        self._settings_of_groups: dict[GroupId, ShareSettings] = {}
        self._partitions = partitions
        self._delayed_fetches = delayed_fetches
        self._deadlines = deadlines
        self._runnable = runnable
        self._persister = persister
        self._settings = settings
        self._dead_letters = dead_letters
        self._loader = StateLoader(
            partitions, group_commit, delayed_fetches, deadlines, persister, settings, self._loaded
        )
        most = int(metadata.config.get("group.share.max.share.sessions"))
        self.sessions = ShareSessions(most, self._wake_displaced, lambda: self._releases.partition_count)
        self.counters = ShareCounters()
        self.led_partitions = LedPartitions()
        self._releases = SessionReleases(deadlines, self._release, self._drop_if_unused)
        self._alarms: dict[ShareKey, Alarm] = {}
        self._turn_ms = self._turns = 0
        self._ending: dict[ShareKey, LedSharePartition] = {}
        """Dropped with writes on their way."""

    @property
    def now_ms(self) -> int:
        return self._deadlines.now_ms

    @property
    def changes(self) -> int:
        return self._delayed_fetches.begin_recording()

    def changed_since(self, changes: int) -> Sequence[FetchKey] | None:
        return self._delayed_fetches.recorded_since(changes)

    def settings_of(self, group_id: GroupId) -> ShareGroupSettings:
        return self._settings.of(group_id)

    def led(self, key: ShareKey, partition: TopicPartition) -> LedSharePartition | Refusal | None:
        led = self.led_partitions.get(key)
        if led is not None:
            return led
        leader = self._partitions.leader_log(partition)
        if isinstance(leader, ErrorCode):
            return NOT_LEADER if leader is ErrorCode.NOT_LEADER_OR_FOLLOWER else Refusal(leader, leader.name)
        if len(self.led_partitions) >= MOST:
            return None
        led = LedSharePartition(key, partition, leader.leader_epoch)
        self.led_partitions.add(led)
        if not self._must_wait(led):
            self._loader.load(led)
        return led

    def _must_wait(self, led: LedSharePartition) -> bool:
        """True while writes of the same epoch are on their way, which the coordinator would not refuse: a state read
        before they arrive has records available whose acknowledgement may still be answered."""
        ending = self._ending.get(led.key)
        return ending is not None and ending.leader_epoch == led.leader_epoch

    def led_already(self, key: ShareKey) -> LedSharePartition | None:
        return self.led_partitions.get(key)

    def begin_at(self, led: LedSharePartition, offset: Offset | Refusal) -> None:
        self._loader.begin_at(led, offset)

    def _loaded(self, led: LedSharePartition, state: ShareState | Refusal) -> None:
        if isinstance(state, Refusal):
            self._drop(led, state)
            return
        try:
            led.machine = SharePartition(state, self._machine_settings(led.key.group_id))
        except InvalidShareState as error:
            self._drop(led, Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
            return
        for letters in led.machine.pending_dead_letters:
            self._copy(led, letters)
        self._delayed_fetches.wake(led.key)

    def partition_added(self, key: ShareKey) -> None:
        led = self.led_partitions.get(key)
        if led is None or led.machine is None:
            return
        if led.is_compared:
            led.compares_again = True
        else:
            self._compare(led)

    def _compare(self, led: LedSharePartition) -> None:
        led.is_compared, led.compares_again = True, False
        compared = partial(self._compared, led, led.durable_start)
        self._persister.summary(led.key, led.leader_epoch, compared)

    def _compared(self, led: LedSharePartition, durable_start: Offset, summary: StateSummary) -> None:
        if led.refusal is not None or led.machine is None:
            return
        # Writes may have arrived meanwhile. An initialization resets the leader epoch: a lower one says nothing.
        # Without an answer the members keep what they have.
        is_same = summary.error_code != ErrorCode.NONE or (
            summary.state_epoch == led.machine.state_epoch
            and summary.leader_epoch <= led.leader_epoch
            and durable_start <= summary.start_offset <= led.sent_start
        )
        if not is_same:
            self._drop(led, NOT_LEADER)
        elif led.compares_again:
            self._compare(led)
        else:
            led.is_compared = False
            self._delayed_fetches.wake(led.key)

    def machine_of(self, led: LedSharePartition) -> SharePartition | None:
        return None if led.is_compared else self._machine_of(led)

    def _machine_of(self, led: LedSharePartition) -> SharePartition | None:
        machine = led.machine
        if machine is None or led.refusal is not None:
            return None
        machine.settings = self._machine_settings(led.key.group_id)
        return machine

    def _machine_settings(self, group_id: GroupId) -> ShareSettings:
        basis = self._metadata.image, self._metadata.config
        if basis[0] is not self._settings_basis[0] or basis[1] is not self._settings_basis[1]:
            self._settings_basis = basis
            self._settings_of_groups.clear()
        cached = self._settings_of_groups.get(group_id)
        if cached is None:
            cached = self._settings_of_groups[group_id] = self._compute_settings(group_id)
        return cached

    def _compute_settings(self, group_id: GroupId) -> ShareSettings:
        settings = self._settings.of(group_id)
        return ShareSettings(
            lock_duration_ms=settings.record_lock_duration_ms,
            max_deliveries=settings.delivery_count_limit,
            max_in_flight=settings.partition_max_record_locks,
            may_renew=settings.renew_enabled,
            has_dead_letters=bool(settings.dead_letter_topic) and self._dead_letters.are_enabled(),
        )

    def acknowledge(
        self, key: ShareKey, member_id: MemberId, acknowledgements: Sequence[Acknowledgement]
    ) -> PendingAcknowledgement:
        pending = PendingAcknowledgement()
        led = self.led_partitions.get(key)
        machine = None if led is None else self._machine_of(led)
        if led is None or machine is None:
            pending.settle(UNKNOWN_PARTITION)
            return pending
        outcome = machine.acknowledge(member_id, acknowledgements, self.now_ms)
        if isinstance(outcome, StateWrite):
            self._write(led, outcome, pending)
        else:
            pending.settle(outcome)
        self._changed(led)
        return pending

    def acquired(self, led: LedSharePartition) -> None:
        self._watch(led)

    def park(self, task: Task, wait: UntilAcknowledged) -> None:
        waiting = [pending for pending in wait.pending if not pending.is_settled]

        def settled() -> None:
            if all(pending.is_settled for pending in waiting):
                self._runnable.wake(task)

        for pending in waiting:
            pending.when_settled(settled)
        settled()

    # The end of sessions

    def end_session(self, session: ShareSession) -> None:
        key = session.key
        if self.sessions.get(key) is not session:
            return
        self.sessions.remove(key)
        self._ended(session)

    def connection_closed(self, connection_id: int) -> None:
        for session in self.sessions.close(connection_id):
            self._ended(session)

    def _ended(self, session: ShareSession) -> None:
        key = session.key
        self._releases.begin(key, self.led_partitions.among(key.group_id, session.partitions))

    def _wake_displaced(self, session: ShareSession) -> None:
        """Let an earlier request of the member that waits see that it is not current any more."""
        for partition in session.partitions:
            if self._delayed_fetches.wake(ShareKey(session.key.group_id, *partition)):
                return

    def goes_on_releasing(self, key: SessionKey) -> bool:
        return self._releases.goes_on(key)

    def _release(self, key: SessionKey, partitions: Sequence[PartitionKey]) -> None:
        for topic_id, index in partitions:
            led = self.led_partitions.get(ShareKey(key.group_id, topic_id, index))
            machine = None if led is None else self._machine_of(led)
            if led is None or machine is None:
                continue
            write = machine.release(key.member_id)
            if write is not None:
                self._write(led, write)
            self._changed(led)

    def _drop_if_unused(self, group_id: GroupId) -> None:
        if not self._is_unused(group_id):
            return
        # A state read before the last write arrives would be older than the one in memory.
        unused = [led for led in self.led_partitions.of_group(group_id) if not led.writes]
        for led in unused[:_DROPS_PER_SLICE]:
            self._drop(led, NOT_LEADER)
        if len(unused) > _DROPS_PER_SLICE:
            self._deadlines.at(self.now_ms + PAUSE_MS, lambda _now_ms: self._drop_if_unused(group_id))

    def _is_unused(self, group_id: GroupId) -> bool:
        return not self.sessions.has_group(group_id) and not self._releases.has_group(group_id)

    # State at the coordinator

    def _write(self, led: LedSharePartition, write: StateWrite, pending: PendingAcknowledgement | None = None) -> None:
        led.writes += 1
        led.sent_start = max(led.sent_start, write.state.start_offset)
        self._persister.write(led.key, led.leader_epoch, write.state, partial(self._written, led, write, pending))

    def _written(
        self, led: LedSharePartition, write: StateWrite, pending: PendingAcknowledgement | None, persisted: Persisted
    ) -> None:
        led.writes -= 1
        machine = led.machine
        if machine is None:
            return
        error = persisted.error_code
        if error == ErrorCode.NONE:
            led.durable_start = max(led.durable_start, write.state.start_offset)
        outcome = machine.written(write, error)
        refusal = None if error == ErrorCode.NONE else client_error(error, persisted.message or "")
        if pending is not None:
            pending.settle(refusal)
        if refusal is not None and refusal.error_code in _FENCING:
            self._drop(led, refusal)
        for letters in outcome.dead_letters:
            self._copy(led, letters)
        if outcome.wakes and led.refusal is None:
            self._changed(led)
        if not led.writes:
            self._all_written(led)

    def _all_written(self, led: LedSharePartition) -> None:
        if self._is_unused(led.key.group_id):
            self._drop(led, NOT_LEADER)
        if self._ending.get(led.key) is not led:
            return
        next_led = self.led_partitions.get(led.key)
        is_waiting = next_led is not None and self._must_wait(next_led)
        del self._ending[led.key]
        if next_led is not None and is_waiting:
            self._loader.load(next_led)

    def _copy(self, led: LedSharePartition, letters: DeadLetters) -> None:
        if led.refusal is not None:
            return  # the next leader reads the state, and writes them
        led.writes += 1
        self._dead_letters.copy(led, letters, partial(self._copied, led, letters))

    def _copied(self, led: LedSharePartition, letters: DeadLetters, is_written: bool, headers_only: int) -> None:
        led.writes -= 1
        count = letters.last_offset - letters.first_offset + 1
        if is_written:
            self.counters.dead_letters += count - headers_only
            self.counters.dead_letters_without_record += headers_only
        elif led.refusal is None:
            self.counters.failed_dead_letters += count
        # As in Apache Kafka, records are archived whether they could be copied or not.
        if led.refusal is None and led.machine is not None:
            self._write(led, led.machine.archived(letters))
        elif not led.writes:
            self._all_written(led)

    # Locks

    def _watch(self, led: LedSharePartition, not_before_ms: int = 0) -> None:
        """Set the alarm for the next lock to expire; an earlier alarm stays."""
        due_ms = None if led.machine is None else led.machine.next_deadline_ms
        if due_ms is None or led.refusal is not None:
            return
        due_ms = max(due_ms, not_before_ms)
        alarm = self._alarms.get(led.key)
        if alarm is not None and alarm.callback is not None:
            if alarm.at_ms <= due_ms:
                return
            self._deadlines.cancel(alarm)
        self._alarms[led.key] = self._deadlines.at(due_ms, partial(self._expire, led))

    def _expire(self, led: LedSharePartition, now_ms: int) -> None:
        self._alarms.pop(led.key, None)
        machine = self._machine_of(led)
        if machine is not None and self._has_turn(now_ms):
            write = machine.expire(now_ms)
            if write is not None:
                self._write(led, write)
                self._delayed_fetches.wake(led.key)
        self._watch(led, now_ms + PAUSE_MS)

    def _has_turn(self, now_ms: int) -> bool:
        """False once so many have been worked on that other events must have their turn."""
        if now_ms != self._turn_ms:
            self._turn_ms, self._turns = now_ms, 0
        self._turns += 1
        return self._turns <= PARTITIONS_PER_SLICE

    def _changed(self, led: LedSharePartition) -> None:
        self._delayed_fetches.wake(led.key)
        self._watch(led)

    # The end of leadership

    def follow(self, delta: ImageDelta) -> None:
        """Drop the share partitions of deleted topics, and those that have another leader epoch; all if share groups
        were switched off."""
        if not delta.image.features.get(SHARE_VERSION, 0):
            self._end()
        names = [*(topic.name for topic in delta.deleted), *delta.altered]
        for led in self.led_partitions.of_topics(names):
            leader = self._partitions.leader_log(led.partition)
            if (
                isinstance(leader, ErrorCode)
                or leader.leader_epoch != led.leader_epoch
                or leader.log.topic_id != led.key.topic_id
            ):
                self._drop(led, NOT_LEADER)

    def _end(self) -> None:
        self.sessions.clear()
        self._releases.clear()
        for led in list(self.led_partitions):
            self._drop(led, NOT_LEADER)

    def _drop(self, led: LedSharePartition, refusal: Refusal) -> None:
        if led.refusal is not None:
            return
        led.refusal = refusal
        if led.writes:
            self._ending[led.key] = led
        self.led_partitions.remove(led)
        self._loader.dropped(led)
        if not self.led_partitions.has_group(led.key.group_id):
            self._settings_of_groups.pop(led.key.group_id, None)
        alarm = self._alarms.pop(led.key, None)
        if alarm is not None:
            self._deadlines.cancel(alarm)
        if led.machine is not None:
            self.counters.add(led.machine)
        self._delayed_fetches.wake(led.key)
