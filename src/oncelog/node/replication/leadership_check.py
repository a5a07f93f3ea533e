"""Makes certain that this broker still leads partitions before it tells what it knows of them.

A broker that is cut off from the tree, or hears of a change late, goes on leading what others lead by now. What it
appends reaches nobody and is not acknowledged, but what it remembers is old: committed offsets that are no longer the
last ones would send a copier back over records that it has copied, and an end that is no longer the end would be lower
than one that somebody was told. So it asks before it tells them (invariant O9 of docs/internals/groups.md and R7 of
docs/internals/simulation.md; Raft's ReadIndex is the same idea). Apache Kafka does not ask.

A successor is elected from the in-sync set, which only a leader adds to, or from the eligible leaders (KIP-966). Every
other member of these is asked if it knows of a later leader epoch (OffsetForLeaderEpoch with the current one: every
replica judges that). One that knows of none has not led before it was asked. Where one does not answer, the tree is
asked how far it has come: who leads by all that it had taken by then has been replaced by nobody. Where that cannot be
read either, the request waits: what is written waits for that member, too.
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
"""The time that a member has to answer; a frozen one does not."""
AGAIN_MS: Final = 50
"""The pause before all are asked again, or this broker's image is compared again with what the tree has."""
PARTITIONS_PER_REQUEST: Final = 1_000
"""So many are judged by another broker between two requests of others."""
_NOT_LEADING: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)
"""Answers of a member that knows of no later leader epoch, and of one that does not even know of this one."""

Epochs = dict[TopicPartition, LeaderEpoch]
OnSettled = Callable[[Mapping[TopicPartition, ErrorCode]], object]


class LeadershipChecker:
    """Lets requests go on when it is known of each of their partitions whether this broker leads it.
    ``leader_log(partition)`` is its log here, or an error."""

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
        self.silent: set[BrokerId] = set()
        """The brokers that have left the last question unanswered: nobody waits for them a second time."""

    def park(self, task: Task, wait: UntilConfirmed) -> None:
        """Ask those that may lead in this broker's place, and let ``task`` go on when it is certain."""
        task.forget = self.confirm(wait.partitions, wait.deadline_ms, partial(self.runnable.wake, task))

    def confirm(self, partitions: Sequence[TopicPartition], deadline_ms: int, on_settled: OnSettled) -> Cancel:
        """Find out of which partitions nobody has begun to lead them in this broker's place. ``on_settled`` is called
        once, perhaps before this returns, with the errors of the others, as ``UntilConfirmed`` names them."""
        question = LeadershipCheck(self, partitions, on_settled)
        question.ask()
        if not question.is_over:
            question.deadline = self.deadlines.at(deadline_ms, lambda _now_ms: question.give_up())
        return question.forget

    def leads(self, partition: TopicPartition, on_settled: Callable[[bool], object]) -> Cancel:
        """Confirm one partition within ``oncelog.transaction.wait.ms``; ``on_settled`` is called once."""
        deadline_ms = self.deadlines.now_ms + int(self.metadata.config.get("oncelog.transaction.wait.ms"))
        return self.confirm((partition,), deadline_ms, lambda refused: on_settled(not refused))

    def possible_successors(self, leader: LeaderLog) -> set[BrokerId]:
        """The other brokers of which one may have been elected, by what this one knows."""
        known = self.metadata.image.partition(leader.partition)
        eligible = () if known is None else known.elr
        return {*leader.replicas.successors(), *eligible} - {self.metadata.broker_id}


class _Open(NamedTuple):
    """A partition that is led here as far as this broker knows, and the brokers that have not said yet."""

    leader_epoch: LeaderEpoch
    missing: set[BrokerId]


class LeadershipCheck:
    """A question about several partitions, until it is answered or nobody waits for it."""

    def __init__(
        self, services: LeadershipChecker, partitions: Sequence[TopicPartition], on_settled: OnSettled
    ) -> None:
        self.is_over = False
        self.deadline: Alarm | None = None
        self._services = services
        self._on_settled = on_settled
        self._open = {each: _Open(LeaderEpoch(-1), set()) for each in partitions}
        """The partitions of which nothing is certain yet."""
        self._refused: dict[TopicPartition, ErrorCode] = {}
        self._again: Alarm | None = None
        self._asks_tree = False

    def ask(self) -> None:
        """Ask all brokers that may lead one of the partitions instead."""
        self._asks_tree = False
        by_member: dict[BrokerId, Epochs] = {}
        for partition in list(self._open):
            leader = self._services.leader_log(partition)
            if isinstance(leader, ErrorCode):
                self._settle(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                continue
            members = self._services.possible_successors(leader)
            self._open[partition] = _Open(leader.leader_epoch, members)
            for member in members:
                by_member.setdefault(member, {})[partition] = leader.leader_epoch
            if not members:
                self._settle(partition, ErrorCode.NONE)
        for member, epochs in sorted(by_member.items()):
            for asked in _parts(epochs):
                answered = partial(self._answered, member, asked)
                self._services.links.request(member, LinkPurpose.CONTROL, _message(asked), answered, ANSWER_MS)
        self._end_if_settled()
        if not self._services.silent.isdisjoint(by_member):
            self._ask_tree()

    def give_up(self) -> None:
        """Nobody could tell in time."""
        for partition in list(self._open):
            self._settle(partition, ErrorCode.REQUEST_TIMED_OUT)
        self._end_if_settled()

    def forget(self) -> None:
        """Take no more answers."""
        self.is_over = True
        for alarm in (self.deadline, self._again):
            if alarm is not None:
                self._services.deadlines.cancel(alarm)

    def _settle(self, partition: TopicPartition, error: ErrorCode) -> None:
        del self._open[partition]
        if error is not ErrorCode.NONE:
            self._refused[partition] = error

    def _end_if_settled(self) -> None:
        if not self._open and not self.is_over:
            self.forget()
            self._on_settled(self._refused)

    def _answered(self, member: BrokerId, asked: Epochs, response: OffsetForLeaderEpochResponse | None) -> None:
        if response is None:
            self._services.silent.add(member)
        else:
            self._services.silent.discard(member)
        errors = {} if response is None else _errors(response)
        is_unclear = False
        for partition, leader_epoch in asked.items():
            waiting = self._open.get(partition)
            if waiting is None or waiting.leader_epoch != leader_epoch or member not in waiting.missing:
                continue
            error = errors.get(partition)
            if error == ErrorCode.FENCED_LEADER_EPOCH:
                self._settle(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif error not in _NOT_LEADING:
                is_unclear = True
            else:
                waiting.missing.discard(member)
                if not waiting.missing:
                    self._settle(partition, ErrorCode.NONE)
        self._end_if_settled()
        if is_unclear:
            self._ask_tree()

    def _ask_tree(self) -> None:
        if not self.is_over and not self._asks_tree:
            self._asks_tree = True
            self._services.tree_reads.read_position(self._tree_answered)

    def _tree_answered(self, position: int | None) -> None:
        if self.is_over:
            return
        if position is None:
            self._after_pause(self.ask)
        else:
            self._compare(position)

    def _compare(self, position: int) -> None:
        """Judge by this broker's image of the cluster, once it has all that the tree had taken when it was asked."""
        if self._services.metadata.position < position:
            self._after_pause(partial(self._compare, position))
            return
        for partition, waiting in list(self._open.items()):
            leader = self._services.leader_log(partition)
            leads = not isinstance(leader, ErrorCode) and leader.leader_epoch == waiting.leader_epoch
            self._settle(partition, ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._end_if_settled()

    def _after_pause(self, step: Callable[[], None]) -> None:
        deadlines = self._services.deadlines
        self._again = deadlines.at(deadlines.now_ms + AGAIN_MS, lambda _now_ms: step())


def _parts(epochs: Epochs) -> Iterator[Epochs]:
    items = list(epochs.items())
    for start in range(0, len(items), PARTITIONS_PER_REQUEST):
        yield dict(items[start : start + PARTITIONS_PER_REQUEST])


def _message(asked: Epochs) -> OffsetForLeaderEpochRequest:
    """A question about the ends of the current epochs, asked with them: a replica that knows of a later one says so."""
    topics: dict[TopicName, list[OffsetForLeaderPartition]] = {}
    for (topic, index), epoch in asked.items():
        each = OffsetForLeaderPartition(partition=index, current_leader_epoch=epoch, leader_epoch=epoch)
        topics.setdefault(topic, []).append(each)
    return OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=topic, partitions=partitions) for topic, partitions in topics.items()]
    )


def _errors(response: OffsetForLeaderEpochResponse) -> Mapping[TopicPartition, int]:
    return {
        TopicPartition(TopicName(topic.topic), each.partition): each.error_code
        for topic in response.topics
        for each in topic.partitions
    }
