"""Confirms that this broker still leads a partition before it answers from memory (Raft's ReadIndex).

A broker that is cut off from the coordination tree, or hears of its changes late, keeps acting as leader after a
successor has been elected. Its appends are not acknowledged, but answers from memory may be stale: old committed
offsets make a copier repeat records, and a log end may be lower than one already reported (O9 of
docs/internals/groups.md, R7 of docs/internals/simulation.md). Apache Kafka does not check.

If the tree's position can be read at once (a file of this host) and this broker's image is as new, the image decides.
Otherwise every possible successor is asked, by OffsetForLeaderEpoch, whether it knows a later epoch; one that knows
none had not become leader before the request. If a member does not answer, this broker compares its image with the
tree. docs/internals/leadership-proofs.md has the argument, and the reason why there are no leases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, LeaderEpoch, TopicName, TopicPartition
from oncelog.node.brokers.broker_links import LinkPurpose
from oncelog.node.brokers.messages import Cancel
from oncelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from oncelog.handlers.broker.ports import LeaderLog
    from oncelog.handlers.broker.waits import UntilConfirmed
    from oncelog.node.brokers.broker_links import BrokerLinks
    from oncelog.node.cluster.metadata import Metadata
    from oncelog.node.cluster.tree_reads import TreeReads
    from oncelog.node.kernel.deadlines import Alarm, Deadlines
    from oncelog.node.kernel.tasks import Runnable, Task

ANSWER_MS: Final = 200
"""Time within which a member must answer; a frozen one does not."""
RETRY_MS: Final = 50
"""Pause before all members are asked again, or the image is compared again with the tree's position."""
FAR_MS: Final = 10_000
"""Pause after the tree's position could not be read at once: most such trees are on other hosts."""
PARTITIONS_PER_REQUEST: Final = 1_000
"""A bound on the time that a request takes the other broker's loop."""
# Answers of members that know no later leader epoch, or not even the current one.
_NOT_LEADING: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)

Epochs = dict[TopicPartition, LeaderEpoch]
OnSettled = Callable[[Mapping[TopicPartition, ErrorCode]], object]


class LeadershipChecker:
    """Runs leadership checks. ``leader_log(partition)`` is this broker's log, or an error."""

    def __init__(
        self,
        links: BrokerLinks,
        tree_reads: TreeReads,
        metadata: Metadata,
        deadlines: Deadlines,
        runnable: Runnable,
        leader_log: Callable[[TopicPartition], LeaderLog | ErrorCode],
    ) -> None:
        self.links = links
        self.tree_reads = tree_reads
        self.metadata = metadata
        self.deadlines = deadlines
        self.runnable = runnable
        self.leader_log = leader_log
        self.unresponsive: set[BrokerId] = set()
        """Brokers that left the last request unanswered: no check waits for them again."""
        self._at_once_from_ms = 0
        """The time from which a check tries to read the tree's position at once."""

    def park(self, task: Task, wait: UntilConfirmed) -> None:
        task.forget = self.confirm(wait.partitions, wait.deadline_ms, partial(self.runnable.wake, task))

    def confirm(self, partitions: Sequence[TopicPartition], deadline_ms: int, on_settled: OnSettled) -> Cancel:
        """Check partitions. ``on_settled`` is called once, perhaps before this returns, with the errors of the
        unconfirmed, as ``UntilConfirmed`` describes.
        """
        check = LeadershipCheck(self, partitions, on_settled)
        check.start()
        if not check.is_over:
            check.deadline = self.deadlines.at(deadline_ms, lambda _now_ms: check.give_up())
        return check.forget

    def leads(self, partition: TopicPartition, on_settled: Callable[[bool], object]) -> Cancel:
        """Check one partition within ``oncelog.transaction.wait.ms``; ``on_settled`` gets True, once, if this broker
        leads it.
        """
        deadline_ms = self.deadlines.now_ms + int(self.metadata.config.get("oncelog.transaction.wait.ms"))
        return self.confirm((partition,), deadline_ms, lambda refused: on_settled(not refused))

    def position_at_once(self) -> int | None:
        """The tree's position; None where it cannot be read at once."""
        now_ms = self.deadlines.now_ms
        if now_ms < self._at_once_from_ms:
            return None
        position = self.tree_reads.position_at_once()
        if position is None:
            self._at_once_from_ms = now_ms + FAR_MS
        return position

    def possible_successors(self, leader: LeaderLog) -> set[BrokerId]:
        """The other brokers that may have been elected, as far as this one knows."""
        # A successor comes from the in-sync set, which only the leader extends, or the eligible leaders (KIP-966).
        image_partition = self.metadata.image.partition(leader.partition)
        eligible = () if image_partition is None else image_partition.elr
        return {*leader.replicas.successors(), *eligible} - {self.metadata.broker_id}


class _Pending(NamedTuple):
    """A partition that this broker believes it leads, and the members that have not answered."""

    leader_epoch: LeaderEpoch
    unanswered: set[BrokerId]


class LeadershipCheck:
    """A check of several partitions, until settled or cancelled."""

    def __init__(
        self, services: LeadershipChecker, partitions: Sequence[TopicPartition], on_settled: OnSettled
    ) -> None:
        self.is_over = False
        self.deadline: Alarm | None = None
        self._services = services
        self._on_settled = on_settled
        # The partitions that are not settled.
        self._pending = {partition: _Pending(LeaderEpoch(-1), set()) for partition in partitions}
        self._refused: dict[TopicPartition, ErrorCode] = {}
        self._retry: Alarm | None = None
        self._reads_tree = False

    def start(self) -> None:
        for partition in list(self._pending):
            leader = self._services.leader_log(partition)
            if isinstance(leader, ErrorCode):
                self._settle(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                continue
            members = self._services.possible_successors(leader)
            self._pending[partition] = _Pending(leader.leader_epoch, members)
            if not members:
                self._settle(partition, ErrorCode.NONE)
        self._end_if_settled()
        if self.is_over:
            return
        position = self._services.position_at_once()
        # An image that is behind soon follows; the members answer sooner.
        if position is None or self._services.metadata.position < position:
            self._ask_members()
        else:
            self._settle_by_image()

    def _ask_members(self) -> None:
        self._reads_tree = False
        by_member: dict[BrokerId, Epochs] = {}
        for partition, pending in self._pending.items():
            for member in pending.unanswered:
                by_member.setdefault(member, {})[partition] = pending.leader_epoch
        for member, epochs in sorted(by_member.items()):
            for epochs_part in _chunks(epochs):
                on_answer = partial(self._answered, member, epochs_part)
                self._services.links.request(
                    member, LinkPurpose.CONTROL, _epoch_request(epochs_part), on_answer, ANSWER_MS
                )
        if not self._services.unresponsive.isdisjoint(by_member):
            self._read_tree_position()

    def give_up(self) -> None:
        for partition in list(self._pending):
            self._settle(partition, ErrorCode.REQUEST_TIMED_OUT)
        self._end_if_settled()

    def forget(self) -> None:
        self.is_over = True
        for alarm in (self.deadline, self._retry):
            if alarm is not None:
                self._services.deadlines.cancel(alarm)

    def _settle(self, partition: TopicPartition, error: ErrorCode) -> None:
        del self._pending[partition]
        if error is not ErrorCode.NONE:
            self._refused[partition] = error

    def _end_if_settled(self) -> None:
        if not self._pending and not self.is_over:
            self.forget()
            self._on_settled(self._refused)

    def _answered(self, member: BrokerId, epochs: Epochs, response: OffsetForLeaderEpochResponse | None) -> None:
        if response is None:
            self._services.unresponsive.add(member)
        else:
            self._services.unresponsive.discard(member)
        errors = {} if response is None else _errors(response)
        is_unclear = False
        for partition, leader_epoch in epochs.items():
            pending = self._pending.get(partition)
            if pending is None or pending.leader_epoch != leader_epoch or member not in pending.unanswered:
                continue
            error = errors.get(partition)
            if error == ErrorCode.FENCED_LEADER_EPOCH:
                self._settle(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif error not in _NOT_LEADING:
                is_unclear = True
            else:
                pending.unanswered.discard(member)
                if not pending.unanswered:
                    self._settle(partition, ErrorCode.NONE)
        self._end_if_settled()
        if is_unclear:
            self._read_tree_position()

    def _read_tree_position(self) -> None:
        if not self.is_over and not self._reads_tree:
            self._reads_tree = True
            self._services.tree_reads.read_position(self._tree_position_read)

    def _tree_position_read(self, position: int | None) -> None:
        if self.is_over:
            return
        # The tree cannot be read either: the check is repeated until the request's deadline.
        if position is None:
            self._after_pause(self.start)
        else:
            self._compare_with_image(position)

    def _compare_with_image(self, position: int) -> None:
        """Settle by this broker's image, once it has reached the tree's position."""
        if self._services.metadata.position < position:
            self._after_pause(partial(self._compare_with_image, position))
        else:
            self._settle_by_image()

    def _settle_by_image(self) -> None:
        # If this broker still leads by that image, no successor had been elected.
        for partition, pending in list(self._pending.items()):
            leader = self._services.leader_log(partition)
            leads = not isinstance(leader, ErrorCode) and leader.leader_epoch == pending.leader_epoch
            self._settle(partition, ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._end_if_settled()

    def _after_pause(self, step: Callable[[], None]) -> None:
        deadlines = self._services.deadlines
        self._retry = deadlines.at(deadlines.now_ms + RETRY_MS, lambda _now_ms: step())


def _chunks(epochs: Epochs) -> Iterator[Epochs]:
    items = list(epochs.items())
    for start in range(0, len(items), PARTITIONS_PER_REQUEST):
        yield dict(items[start : start + PARTITIONS_PER_REQUEST])


def _epoch_request(epochs: Epochs) -> OffsetForLeaderEpochRequest:
    """Ask for the ends of the current epochs; a replica that knows a later epoch answers FENCED_LEADER_EPOCH."""
    topics: dict[TopicName, list[OffsetForLeaderPartition]] = {}
    for (topic, index), epoch in epochs.items():
        partition = OffsetForLeaderPartition(partition=index, current_leader_epoch=epoch, leader_epoch=epoch)
        topics.setdefault(topic, []).append(partition)
    return OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=topic, partitions=partitions) for topic, partitions in topics.items()]
    )


def _errors(response: OffsetForLeaderEpochResponse) -> Mapping[TopicPartition, int]:
    return {
        TopicPartition(TopicName(topic.topic), partition.partition): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }
