"""State machine of a group member that balances through ZooKeeper: the outcome of each step gives the next one.

Rules:

1. After a change (of a consumer or topic, or a lost connection, which loses watches) and the current step, the member
   reads the group. If its assignment differs, it stops, commits and releases everything at once, because Java's
   consumers give up after four tries; then it reads the group again and claims.
2. Offsets are read after the claim, when the previous owner has committed.
3. Records are delivered only under the lease: the session timeout, counted from before the last request that proved the
   session alive. A frozen or cut off process delivers and commits nothing beside its successor.
4. Only records reported as processed in the current generation are committed, and offsets never go back.
5. The member fails, as in Java, after ``rebalance.max.retries`` tries, ``rebalance.backoff.ms`` apart, that found a
   partition taken; a try cut short by a change does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from oncelog.base.ids import TopicPartition
from oncelog.base.invariant import invariant
from oncelog.client.errors import ClientError
from oncelog.legacy.zookeeper_groups.machine.assignment import GroupSnapshot, assign_partitions
from oncelog.legacy.zookeeper_groups.machine.nodes import ids_path
from oncelog.legacy.zookeeper_groups.machine.settings import ZooKeeperGroupSettings
from oncelog.legacy.zookeeper_groups.machine.starting_offsets import Stored, start_warnings, starts
from oncelog.legacy.zookeeper_groups.machine.steps import (
    Claim,
    Commit,
    Connect,
    Disconnect,
    Ends,
    Failed,
    FindEnds,
    FindOffsets,
    ReadGroup,
    Register,
    Release,
    Renew,
    SessionEnded,
    Step,
    StepOutcome,
    StopDelivery,
    Taken,
    Unavailable,
    Unregistered,
)
from oncelog.legacy.zookeeper_groups.machine.subscription import Subscription, registration_value

_AGAIN_MS: Final = 200  # The pause before a step is repeated that could not be carried out.


class ZooKeeperRebalanceFailed(ClientError):
    """Another consumer kept partitions assigned to this one through all tries."""


class MemberState(Enum):
    # Each comment begins with the requests of the state. The end of the session leads from any state to UNCONNECTED,
    # and commits stop.

    # Connect: UNREGISTERED.
    UNCONNECTED = "unconnected"
    # Register: LOOKING. Taken by an earlier instance, or one with the same id: again after a back-off.
    UNREGISTERED = "unregistered"
    # ReadGroup: CLAIMING; without a broker IDLE until one comes.
    LOOKING = "looking"
    # Claim: SEEKING; taken: BACKING_OFF, one try less.
    CLAIMING = "claiming"
    # FindOffsets: RESETTING or OWNING; failed: again after a back-off.
    SEEKING = "seeking"
    # FindEnds: OWNING; failed: again after a back-off.
    RESETTING = "resetting"
    # Renew and Commit, in both; a change: CHECKING.
    OWNING = "owning"
    IDLE = "idle"
    # ReadGroup: OWNING or IDLE with the same assignment, STOPPING with another one.
    CHECKING = "checking"
    # Renew; LOOKING after a change or when the back-off is over, FAILED without a try left.
    BACKING_OFF = "backing off"
    # StopDelivery: COMMITTING.
    STOPPING = "stopping"
    # Commit: RELEASING, also if it failed.
    COMMITTING = "committing"
    # Release: LOOKING, or LEAVING.
    RELEASING = "releasing"
    # Disconnect: LEFT.
    LEAVING = "leaving"
    LEFT = "left"
    FAILED = "failed"


_LEAVABLE: Final = (
    MemberState.OWNING,
    MemberState.IDLE,
    MemberState.CHECKING,
    MemberState.LOOKING,
    MemberState.CLAIMING,
    MemberState.BACKING_OFF,
)
_DELIVERING: Final = (MemberState.OWNING, MemberState.CHECKING)
ENDED: Final = (MemberState.LEFT, MemberState.FAILED)


class ZooKeeperMember:
    """The state machine. ``consumer`` is its registered id, unique in the group; times are in milliseconds."""

    def __init__(
        self, consumer: str, subscription: Subscription, settings: ZooKeeperGroupSettings, wall_ms: int
    ) -> None:
        self.consumer = consumer
        self.settings = settings
        self.state = MemberState.UNCONNECTED
        self.generation = 0
        """Increases when delivery begins and when it stops."""
        self.positions: Mapping[TopicPartition, int] = {}
        """The partitions to deliver, with their starting offsets."""
        self.owners: Mapping[TopicPartition, str] = {}
        """The claimed partitions, each with its owning thread."""
        self.error: ClientError | None = None
        """The reason for ``FAILED``."""
        self.commit_failure: str | None = None
        """Why the last commit since ``commit`` was called failed."""
        self.lease_until_ms = 0
        self._subscription = subscription
        self._value = registration_value(subscription, wall_ms)
        self._begun: dict[TopicPartition, int] = {}
        self._processed: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._pending_step: Step | None = None
        self._requested_ms = 0
        self._changed = False
        self._leaving = False
        self._commit_requested = False
        self._tries = 0
        self._not_before_ms = 0
        self._commit_due_ms = 0
        self._remarks: list[str] = []
        self._last_reason = ""

    # Called by the application.

    def may_deliver(self, now_ms: int) -> bool:
        """True while records of ``positions`` may be handed out."""
        return self.state in _DELIVERING and now_ms < self.lease_until_ms

    def processed(self, generation: int, partition: TopicPartition, next_offset: int) -> bool:
        """Mark records before ``next_offset``, read in this generation, as processed. False if another consumer reads
        them too.
        """
        if generation != self.generation or partition not in self.positions:
            return False
        if next_offset > self._processed.get(partition, self.positions[partition]):
            self._processed[partition] = next_offset
        return True

    def restarted(self, generation: int, partition: TopicPartition, offset: int) -> None:
        """Continue a partition at another offset, because its position is no longer in the log."""
        if generation == self.generation and partition in self.positions:
            self.positions = {**self.positions, partition: offset}
            self._processed.pop(partition, None)

    def commit(self) -> None:
        self._commit_requested = bool(self._uncommitted())
        self.commit_failure = None

    @property
    def is_committing(self) -> bool:
        return self._commit_requested or isinstance(self._pending_step, Commit)

    @property
    def has_uncommitted(self) -> bool:
        return bool(self._uncommitted())

    def leave(self, *, commit: bool = True) -> None:
        """Stop, commit processed records (or not), release, and end the session."""
        self._leaving = True
        if not commit:
            self._processed = {}

    def drain_remarks(self) -> list[str]:
        """New warnings for the user, each returned once."""
        remarks, self._remarks = self._remarks, []
        return remarks

    # Called by the code that runs the steps.

    def changed(self) -> None:
        """A watch has fired: the group, its topics or the owner in the way may have changed."""
        self._changed = True

    def due_ms(self, now_ms: int) -> int:
        """The time at which ``next_step`` may return something else if nothing happens before."""
        if self._not_before_ms > now_ms:
            return self._not_before_ms
        due = self._renew_due_ms()
        if self.state is MemberState.OWNING and self.settings.auto_commit and self._uncommitted():
            due = min(due, self._commit_due_ms)
        return max(now_ms, due)

    def next_step(self, now_ms: int) -> Step | None:
        """The step to run now, or None. Its outcome must be passed to ``done`` before the next call."""
        invariant(self._pending_step is None, "a step while another is under way", pending=self._pending_step)
        self._pending_step, self._requested_ms = self._choose(now_ms), now_ms
        return self._pending_step

    def done(self, outcome: StepOutcome, now_ms: int) -> None:
        step, self._pending_step = self._pending_step, None
        invariant(step is not None, "an outcome without a step under way", outcome=outcome)
        match outcome:
            case SessionEnded():
                self._session_ended()
            case Unavailable(reason):
                self._not_before_ms = now_ms + _AGAIN_MS
                if reason and reason != self._last_reason:
                    self._remarks.append(reason)
                self._last_reason = reason
            case Failed(reason, final):
                self._failed(step, reason, final, now_ms)
            case Taken(path, owner):
                self._taken(path, owner, now_ms)
            case Unregistered():
                self._renewed()  # The answer proves that the session is alive.
                self._unregistered()
            case _:
                self._advance(step, outcome, now_ms)

    def _choose(self, now_ms: int) -> Step | None:
        if self._must_stop():
            self._begin_to_stop()
        if self._changed and self.state in (MemberState.OWNING, MemberState.IDLE):
            self.state = MemberState.CHECKING
        if now_ms < self._not_before_ms and self.state is not MemberState.BACKING_OFF:
            return None
        match self.state:
            case MemberState.UNCONNECTED:
                return Disconnect() if self._leaving else Connect()
            case MemberState.UNREGISTERED:
                return Disconnect() if self._leaving else Register(self._path, self._value)
            case MemberState.LOOKING | MemberState.CHECKING:
                self._changed = False
                return ReadGroup()
            case MemberState.CLAIMING:
                return Claim(self.owners)
            case MemberState.SEEKING:
                return FindOffsets(tuple(self.owners))
            case MemberState.RESETTING:
                missing = tuple(partition for partition in self.owners if partition not in self._begun)
                return FindEnds(missing, self.settings.reset == "smallest")
            case MemberState.STOPPING:
                return StopDelivery()
            case MemberState.COMMITTING:
                return self._commit_step(now_ms)
            case MemberState.RELEASING:
                return Release(self.owners)
            case MemberState.LEAVING:
                return Disconnect()
            case MemberState.BACKING_OFF if self._changed or now_ms >= self._not_before_ms:
                return self._try_again()
            case MemberState.OWNING | MemberState.IDLE | MemberState.BACKING_OFF:
                return self._keep(now_ms)
        return None

    def _must_stop(self) -> bool:
        """The member leaves, or the group changed before delivery began."""
        if self.state in (MemberState.SEEKING, MemberState.RESETTING):
            return self._changed or self._leaving
        return self._leaving and self.state in _LEAVABLE

    def _begin_to_stop(self) -> None:
        self._tries = 0
        self._not_before_ms = 0
        self.state = MemberState.STOPPING

    def _keep(self, now_ms: int) -> Step | None:
        if now_ms >= self._renew_due_ms():
            return Renew(self._path)
        due = self.settings.auto_commit and now_ms >= self._commit_due_ms
        if self.state is MemberState.OWNING and (due or self._commit_requested):
            self._commit_requested = False
            self._commit_due_ms = now_ms + self.settings.auto_commit_interval_ms
            return self._commit_of(self._uncommitted())
        return None

    def _renew_due_ms(self) -> int:
        return self.lease_until_ms - self.settings.session_timeout_ms * 2 // 3

    def _commit_step(self, now_ms: int) -> Step | None:
        """The last commit before the release; with an expired lease the member first checks that it is still
        registered.
        """
        offsets = self._uncommitted() if self.settings.auto_commit or self._commit_requested else {}
        if offsets and now_ms >= self.lease_until_ms:
            return Renew(self._path)
        self._commit_requested = False
        step = self._commit_of(offsets)
        if step is None:
            self.state = MemberState.RELEASING
            return Release(self.owners)
        return step

    def _commit_of(self, offsets: Mapping[TopicPartition, int]) -> Commit | None:
        if not offsets:
            return None
        storage = self.settings.storage
        storages = (storage, storage.other) if self.settings.dual_commit else (storage,)
        return Commit(tuple((target, offsets) for target in storages))

    def _uncommitted(self) -> dict[TopicPartition, int]:
        return {p: offset for p, offset in self._processed.items() if offset != self._committed.get(p)}

    def _try_again(self) -> Step:
        if self._changed:
            self._tries -= 1
        self._changed = False
        self._not_before_ms = 0
        self.state = MemberState.LOOKING
        return ReadGroup()

    def _advance(self, step: Step | None, outcome: StepOutcome, now_ms: int) -> None:
        match step, outcome:
            case Connect(), _:
                self.state = MemberState.UNREGISTERED
            case Register(), _:
                self._renewed()
                self.state = MemberState.LOOKING
            case Renew(), _:
                self._renewed()
            case ReadGroup(), GroupSnapshot():
                self._snapshot_read(outcome)
            case Claim(), _:
                self._tries = 0
                self.state = MemberState.SEEKING
            case FindOffsets(), Stored():
                self._offsets_found(outcome, now_ms)
            case FindEnds(), Ends(offsets):
                self._begun |= offsets
                self._begin_delivery(now_ms)
            case StopDelivery(), _:
                self.generation += 1
                self.state = MemberState.COMMITTING
            case Commit(stores), _:
                self._committed |= stores[0][1]
                if self.state is MemberState.COMMITTING:
                    self.state = MemberState.RELEASING
            case Release(), _:
                self._forget()
                self.state = MemberState.LEAVING if self._leaving else MemberState.LOOKING
            case Disconnect(), _:
                self.state = MemberState.LEFT if self.error is None else MemberState.FAILED

    def _renewed(self) -> None:
        self.lease_until_ms = self._requested_ms + self.settings.session_timeout_ms

    def _snapshot_read(self, snapshot: GroupSnapshot) -> None:
        self._renewed()
        if self.consumer not in snapshot.members:
            self._unregistered()
            return
        excluded = self.settings.exclude_internal_topics
        assigned = assign_partitions(self.consumer, self._subscription, snapshot, exclude_internal=excluded)
        if not snapshot.brokers:  # Without brokers there is nothing to fetch, and no consumer can take over.
            assigned = dict(self.owners)
        if self.state is MemberState.LOOKING:
            self.owners = assigned
            self._tries = self._tries if assigned else 0
            self.state = MemberState.CLAIMING if assigned else MemberState.IDLE
        elif assigned == self.owners:
            self.state = MemberState.OWNING if assigned else MemberState.IDLE
        else:
            self._begin_to_stop()

    def _offsets_found(self, stored: Stored, now_ms: int) -> None:
        settings = self.settings
        for warning in start_warnings(stored, settings.storage, settings.dual_commit):
            if warning not in self._remarks:
                self._remarks.append(warning)
        self._begun = starts(stored, settings.storage, settings.dual_commit)
        if all(partition in self._begun for partition in self.owners):
            self._begin_delivery(now_ms)
        else:
            self.state = MemberState.RESETTING

    def _begin_delivery(self, now_ms: int) -> None:
        self.positions = {partition: self._begun[partition] for partition in self.owners}
        self._processed, self._committed = {}, {}
        self._commit_due_ms = now_ms + self.settings.auto_commit_interval_ms
        self.generation += 1
        self.state = MemberState.OWNING

    def _forget(self) -> None:
        self.generation += 1
        self.owners, self.positions, self._begun = {}, {}, {}
        self._processed, self._committed = {}, {}
        self._commit_requested = False

    def _taken(self, path: str, owner: str, now_ms: int) -> None:
        self._not_before_ms = now_ms + self.settings.rebalance_backoff_ms
        self._tries += 1
        if self._tries > self.settings.rebalance_max_retries:
            self._give_up(
                ZooKeeperRebalanceFailed(
                    f"group {self.settings.group!r}: {path} belonged to {owner} through "
                    f"{self._tries} tries, {self.settings.rebalance_backoff_ms} ms apart; stop that consumer, or "
                    "raise rebalance.max.retries or rebalance.backoff.ms above its session timeout"
                )
            )
        elif self.state is MemberState.CLAIMING:
            self.owners = {}
            self.state = MemberState.BACKING_OFF

    def _unregistered(self) -> None:
        """Register again, after releasing owned partitions."""
        if not self.owners:
            self.state = MemberState.UNREGISTERED
        elif self.state is not MemberState.COMMITTING:
            self._begin_to_stop()

    def _session_ended(self) -> None:
        self._forget()
        self._not_before_ms = 0
        self.lease_until_ms = 0
        self.state = MemberState.UNCONNECTED

    def _failed(self, step: Step | None, reason: str, final: bool, now_ms: int) -> None:
        if isinstance(step, Commit):
            self.commit_failure = f"offsets of group {self.settings.group!r} were not committed: {reason}"
            self._remarks.append(self.commit_failure)
            if self.state is MemberState.COMMITTING:
                self.state = MemberState.RELEASING
        elif final:
            self._give_up(ClientError(reason))
        else:
            self._not_before_ms = now_ms + self.settings.rebalance_backoff_ms

    def _give_up(self, error: ClientError) -> None:
        """Fail in order: release owned partitions, then end the session."""
        self.error = error
        self._leaving = True
        self._not_before_ms = 0
        self.state = MemberState.STOPPING if self.owners else MemberState.LEAVING

    @property
    def _path(self) -> str:
        return f"{ids_path(self.settings.group)}/{self.consumer}"
