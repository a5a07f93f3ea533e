"""Requests that wait until it is certain that this broker still leads a partition: a read that is never out of date.

A broker that is cut off from the tree, or hears of a change late, goes on leading what others lead by now. What it
appends reaches nobody and is not acknowledged, but what it remembers is old: committed offsets that are no longer the
last ones would send a copier back over records that it has copied. So a group coordinator asks before it tells them
(invariant O9 of docs/internals/groups.md; Raft's ReadIndex is the same idea). Apache Kafka does not ask.

A successor is elected from the in-sync set, and only a leader adds members to that. Every other member of the maximal
set is asked if it knows of a later leader epoch (OffsetForLeaderEpoch with the current one: every replica judges that).
One that knows of none has not led before it was asked. Where one does not answer, the tree is asked who leads. Where
that cannot be read either, the request waits: what is written waits for that member, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, LeaderEpoch, TopicPartition
from oncelog.core.controller.image import layout
from oncelog.node.links.broker_links import LinkPurpose
from oncelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from oncelog.handlers.support.leadership import LeaderLog
    from oncelog.handlers.support.waits import UntilConfirmed
    from oncelog.node.deadlines import Alarm, Deadlines
    from oncelog.node.links.broker_links import BrokerLinks
    from oncelog.node.requests.tasks import Runnable, Task
    from oncelog.node.requests.tree_reads import TreeReads, Values

ANSWER_MS: Final = 500
"""The time that a member has to answer; a frozen one does not."""
AGAIN_MS: Final = 50
"""The pause before all are asked again."""
_UNKNOWN: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
_NOT_LEADING: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)
"""Answers of a member that knows of no later leader epoch, and of one that does not even know of this one."""


class LeadershipConfirmation:
    """Lets requests go on when this broker is known to lead their partition. ``leader_log(partition)`` is its log
    here, or an error."""

    def __init__(
        self,
        links: BrokerLinks,
        tree_reads: TreeReads,
        broker_id: BrokerId,
        deadlines: Deadlines,
        runnable: Runnable,
        leader_log: Callable[[TopicPartition], LeaderLog | ErrorCode],
    ) -> None:
        self.links = links
        self.tree_reads = tree_reads
        self.broker_id = broker_id
        self.deadlines = deadlines
        self.runnable = runnable
        self.leader_log = leader_log

    def park(self, task: Task, wait: UntilConfirmed) -> None:
        """Ask the other members of the in-sync set, and let ``task`` go on when it is certain."""
        question = Question(self, task, wait)
        question.ask()
        if not question.is_over:
            task.forget = question.forget
            alarm = self.deadlines.at(wait.deadline_ms, lambda _now_ms: question.end(_UNKNOWN))
            question.alarms.append(alarm)


class Question:
    """One request's question, until it is answered or nobody waits for it."""

    def __init__(self, services: LeadershipConfirmation, task: Task, wait: UntilConfirmed) -> None:
        self.is_over = False
        self.alarms: list[Alarm] = []
        self._services = services
        self._task = task
        self._partition = wait.partition
        self._missing: set[BrokerId] = set()
        """Members that have not answered; empty while the tree is asked."""

    def ask(self) -> None:
        """Ask all members."""
        leader = self._services.leader_log(self._partition)
        if isinstance(leader, ErrorCode):
            self.end(ErrorCode.NOT_COORDINATOR)
            return
        members = leader.replicas.successors()
        if not members:
            self.end(ErrorCode.NONE)
            return
        self._missing = set(members)
        message = _message(leader)
        for member in members:
            answered = partial(self._answered, member, leader.leader_epoch)
            self._services.links.request(member, LinkPurpose.CONTROL, message, answered, ANSWER_MS)

    def end(self, answer: ErrorCode) -> None:
        """Let the request go on, if it waits for this."""
        if not self.is_over:
            self.forget()
            self._services.runnable.wake(self._task, answer)

    def forget(self) -> None:
        """Take no more answers."""
        self.is_over = True
        for alarm in self.alarms:
            self._services.deadlines.cancel(alarm)

    def _answered(
        self, member: BrokerId, leader_epoch: LeaderEpoch, response: OffsetForLeaderEpochResponse | None
    ) -> None:
        if self.is_over or member not in self._missing:
            return
        error = _error_of(response)
        if error == ErrorCode.FENCED_LEADER_EPOCH:
            self.end(ErrorCode.NOT_COORDINATOR)
        elif error in _NOT_LEADING:
            self._missing.discard(member)
            if not self._missing:
                self.end(ErrorCode.NONE)
        else:
            self._missing.clear()
            path = layout.state_path(self._partition.topic, self._partition.partition)
            self._services.tree_reads.ask([path], partial(self._read, leader_epoch, path))

    def _read(self, leader_epoch: LeaderEpoch, path: str, values: Values | None) -> None:
        if self.is_over:
            return
        leads = None if values is None else self._leads(leader_epoch, path, values)
        if leads is None:
            deadlines = self._services.deadlines
            self.alarms.append(deadlines.at(deadlines.now_ms + AGAIN_MS, lambda _now_ms: self.ask()))
            return
        self.end(ErrorCode.NONE if leads else ErrorCode.NOT_COORDINATOR)

    def _leads(self, leader_epoch: LeaderEpoch, path: str, values: Values) -> bool | None:
        """True if the partition's state in the tree names this broker, in this epoch; None where it cannot be read."""
        value = values.get(path)
        if value is None:
            return False
        try:
            state = layout.read_state(path, value, 0)
        except layout.DamagedFact:
            return None
        return (state.leader, state.leader_epoch) == (self._services.broker_id, leader_epoch)


def _message(leader: LeaderLog) -> OffsetForLeaderEpochRequest:
    """A question about the end of the current epoch, asked with it: a replica that knows of a later one says so."""
    partition, epoch = leader.partition, leader.leader_epoch
    asked = OffsetForLeaderPartition(partition=partition.partition, current_leader_epoch=epoch, leader_epoch=epoch)
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=partition.topic, partitions=[asked])])


def _error_of(response: OffsetForLeaderEpochResponse | None) -> int | None:
    """The error code of the one partition; None where there was no answer."""
    if response is None or len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        return None
    return response.topics[0].partitions[0].error_code
