"""Questions about an open transaction to its coordinator, on whichever broker that is.

A coordinator on this broker answers as soon as it is certain that nobody coordinates in its place: in the same step
where nobody could. Another one is asked by DescribeTransactions, and makes certain of the same; its answer is as old as
the way back, so whoever acts on it looks at the partition again. No answer, and one of a broker that has ceased to
coordinate the id by the time it comes, is no evidence of anything.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import TRANSACTION_STATE, BrokerId, LeaderEpoch, TopicPartition, TransactionalId
from oncelog.core.transactions.findings import Finding, classify
from oncelog.core.transactions.model import Identity, TransactionDescription
from oncelog.handlers.transactions.findings import finding_of
from oncelog.node.brokers.messages import UNREACHABLE, BrokerMessages, DescribeTransaction, Forget, nothing_to_forget

if TYPE_CHECKING:
    from oncelog.handlers.broker.ports import ClusterView
    from oncelog.handlers.broker.waits import AskCoordinator
    from oncelog.node.coordinators.transaction_coordinators import TransactionCoordinators
    from oncelog.node.kernel.tasks import Runnable, Task
    from oncelog.node.replication.confirmation import LeadershipConfirmation

Found = Callable[[Finding | None], object]
_Leader = tuple[BrokerId, LeaderEpoch]


class CoordinatorQuestions:
    """Asks a transaction's coordinator, here or on another broker, what it knows of it."""

    def __init__(
        self,
        messages: BrokerMessages,
        coordinators: TransactionCoordinators,
        cluster: ClusterView,
        confirmation: LeadershipConfirmation,
        runnable: Runnable,
    ) -> None:
        self._messages = messages
        self._coordinators = coordinators
        self._cluster = cluster
        self._confirmation = confirmation
        self._runnable = runnable

    def ask(self, name: TransactionalId, identity: Identity, partition: TopicPartition, found: Found) -> Forget:
        """Find out about what ``identity`` has open on a partition under a transactional id. ``found`` is called once,
        perhaps before this returns; with None where the coordinator cannot be asked."""
        coordinator = self._coordinators.coordinator_of(name)
        kept_in = self._coordinators.partition_of(name)
        if isinstance(coordinator, ErrorCode) or kept_in is None:
            found(finding_of(self._coordinators, self._cluster, name, identity, partition))
            return nothing_to_forget
        if coordinator == self._cluster.broker_id:
            return self._confirmation.leads(kept_in, partial(self._confirmed, name, identity, partition, found))
        answered = partial(self._described, name, identity, partition, self._leader(name), found)
        return self._messages.send(coordinator, DescribeTransaction(name), answered)

    def park(self, task: Task, wait: AskCoordinator) -> None:
        """Keep a request until the coordinator has answered."""
        found = partial(self._runnable.wake, task)
        task.forget = self.ask(wait.transactional_id, wait.identity, wait.partition, found)

    def _confirmed(
        self, name: TransactionalId, identity: Identity, partition: TopicPartition, found: Found, leads: bool
    ) -> None:
        found(finding_of(self._coordinators, self._cluster, name, identity, partition) if leads else None)

    def _described(
        self,
        name: TransactionalId,
        identity: Identity,
        partition: TopicPartition,
        leader: _Leader | None,
        found: Found,
        answer: object,
    ) -> None:
        if answer is UNREACHABLE or leader != self._leader(name):
            found(None)
            return
        description = answer if isinstance(answer, TransactionDescription) else None
        awaited = () if description is None else description.partitions
        found(classify(description, awaited, identity, partition))

    def _leader(self, name: TransactionalId) -> _Leader | None:
        """The coordinator of an id with its epoch."""
        topic = self._cluster.image.topics.get(TRANSACTION_STATE)
        if topic is None:
            return None
        image = topic.partitions[coordinator_partition(name, len(topic.partitions))]
        return image.leader, image.leader_epoch
