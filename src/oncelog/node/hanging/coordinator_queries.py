"""Questions to coordinators, on whichever brokers they are: about an open transaction, and for the id of a producer.

*About a transaction.* A coordinator on this broker answers as soon as it is certain that nobody coordinates in its
place: in the same step where nobody could. Another one is asked by DescribeTransactions, and makes certain of the same;
its answer is as old as the way back, so the partition has to be looked at again before anything is done. No answer, and
one of a broker that has ceased to coordinate the id by the time it comes, is no evidence of anything.

*For an id.* An open transaction has no name here where its name was lost: with the file of names, or in a power cut. It
may be another broker's, prepared or decided there. Each broker that leads a partition of ``__transaction_state`` is
asked; all have answered only if none of these partitions has changed its leader in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import (
    NO_BROKER,
    TRANSACTION_STATE,
    BrokerId,
    LeaderEpoch,
    ProducerId,
    TopicPartition,
    TransactionalId,
)
from oncelog.core.transactions.classification import Finding, classify
from oncelog.core.transactions.model import Identity, TransactionDescription
from oncelog.handlers.broker.context import CoordinatorRefusal
from oncelog.handlers.transactions.coordinator_verdict import finding_of, ids_of
from oncelog.node.brokers.messages import (
    UNREACHABLE,
    BrokerMessages,
    Cancel,
    DescribeTransaction,
    FindTransactionalIds,
    nothing_to_cancel,
)

if TYPE_CHECKING:
    from oncelog.handlers.broker.ports import ClusterView
    from oncelog.handlers.broker.waits import AskCoordinator, FindTransactionalId
    from oncelog.node.coordinators.transaction_coordinators import TransactionCoordinators
    from oncelog.node.kernel.tasks import Runnable, Task
    from oncelog.node.replication.leadership_check import LeadershipChecker

Names = Mapping[int, TransactionalId]
"""The transactional id by producer id."""
OnIds = Callable[[Names, bool], object]
OnFinding = Callable[[Finding | None], object]
_Leader = tuple[BrokerId, LeaderEpoch]


class CoordinatorQueries:
    """Asks transaction coordinators, here and on other brokers, what they know."""

    def __init__(
        self,
        messages: BrokerMessages,
        coordinators: TransactionCoordinators,
        cluster: ClusterView,
        leadership: LeadershipChecker,
        runnable: Runnable,
    ) -> None:
        self._messages = messages
        self._coordinators = coordinators
        self._cluster = cluster
        self._leadership = leadership
        self._runnable = runnable

    def _leaders(self) -> tuple[_Leader, ...]:
        """The leader of each partition of ``__transaction_state``, with its epoch."""
        topic = self._cluster.image.topics.get(TRANSACTION_STATE)
        partitions = () if topic is None else topic.partitions
        return tuple((partition.leader, partition.leader_epoch) for partition in partitions)

    # About a transaction

    def park(self, task: Task, wait: AskCoordinator) -> None:
        """Keep a request until the coordinator has answered."""
        found = partial(self._runnable.wake, task)
        task.forget = self.ask(wait.transactional_id, wait.identity, wait.partition, found)

    def ask(self, name: TransactionalId, identity: Identity, partition: TopicPartition, found: OnFinding) -> Cancel:
        """Find out about what ``identity`` has open on a partition under a transactional id. ``found`` is called once,
        perhaps before this returns; with None where the coordinator cannot be asked."""
        coordinator = self._coordinators.coordinator_of(name)
        kept_in = self._coordinators.partition_of(name)

        def confirmed(leads: bool) -> None:
            found(finding_of(self._coordinators, self._cluster, name, identity, partition) if leads else None)

        if isinstance(coordinator, ErrorCode) or kept_in is None:
            confirmed(leads=True)  # nobody coordinates the id
            return nothing_to_cancel
        if coordinator == self._cluster.broker_id:
            return self._leadership.leads(kept_in, confirmed)
        leader = self._leader(name)

        def described(answer: object) -> None:
            if answer is UNREACHABLE or leader != self._leader(name):
                found(None)
                return
            description = answer if isinstance(answer, TransactionDescription) else None
            awaited = () if description is None else description.partitions
            found(classify(description, awaited, identity, partition))

        return self._messages.send(coordinator, DescribeTransaction(name), described)

    def _leader(self, name: TransactionalId) -> _Leader | None:
        """The coordinator of an id with its epoch."""
        leaders = self._leaders()
        return leaders[coordinator_partition(name, len(leaders))] if leaders else None

    # For the id of a producer

    def park_search(self, task: Task, wait: FindTransactionalId) -> None:
        """Keep a request until all coordinators have answered."""

        def found(names: Names, all_answered: bool) -> None:
            name = names.get(wait.producer_id)
            refused = name is None and not all_answered
            error = CoordinatorRefusal(ErrorCode.COORDINATOR_NOT_AVAILABLE) if refused else None
            self._runnable.wake(task, name, error)

        task.forget = self.find_ids((wait.producer_id,), found)

    def find_ids(self, producer_ids: Collection[int], found: OnIds) -> Cancel:
        """Ask the coordinators here, and all others if these do not know all producers. ``found(names, all_answered)``
        is called once, perhaps before this returns. The result forgets the question."""
        leaders = self._leaders()
        others = {leader for leader, _epoch in leaders} - {self._cluster.broker_id}
        names: dict[int, TransactionalId] = ids_of(self._coordinators, producer_ids)
        missing = frozenset(ProducerId(each) for each in producer_ids if each not in names)
        all_answered = NO_BROKER not in others and not self._coordinators.is_loading()
        unanswered: dict[BrokerId, Cancel] = dict.fromkeys(sorted(others - {NO_BROKER}), nothing_to_cancel)
        if not missing or not unanswered:
            found(names, all_answered)
            return nothing_to_cancel

        def answered(broker_id: BrokerId, answer: object) -> None:
            nonlocal all_answered
            if isinstance(answer, Mapping):
                names.update(answer)
            else:
                all_answered = False
            del unanswered[broker_id]
            if not unanswered:
                found(names, all_answered and leaders == self._leaders())

        def forget() -> None:
            for forget_one in unanswered.values():
                forget_one()

        for broker_id in list(unanswered):
            message = FindTransactionalIds(missing)
            unanswered[broker_id] = self._messages.send(broker_id, message, partial(answered, broker_id))
        return forget
