"""Queries transaction coordinators, local or remote, about open transactions and for producers' transactional ids.

*About a transaction.* A local coordinator answers once this broker's leadership is confirmed: another may have been
elected. A remote one confirms its own; its answer to DescribeTransactions is stale on arrival, so the caller must check
the partition again before it acts. No answer, or one from a former coordinator, proves nothing.

*For an id.* An id lost with the file of names or in a power cut may be at any leader of a ``__transaction_state``
partition, so all are queried; the search is complete only if no leader changed meanwhile.
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
from oncelog.core.transactions.identity import Identity
from oncelog.core.transactions.model import TransactionDescription
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

# Transactional ids by producer id.
IdsByProducer = Mapping[int, TransactionalId]
OnIds = Callable[[IdsByProducer, bool], object]
OnFinding = Callable[[Finding | None], object]
_Leader = tuple[BrokerId, LeaderEpoch]


class CoordinatorQueries:
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
        topic = self._cluster.image.topics.get(TRANSACTION_STATE)
        partitions = () if topic is None else topic.partitions
        return tuple((partition.leader, partition.leader_epoch) for partition in partitions)

    def park(self, task: Task, wait: AskCoordinator) -> None:
        on_finding = partial(self._runnable.wake, task)
        task.forget = self.query(wait.transactional_id, wait.identity, wait.partition, on_finding)

    def query(
        self, transactional_id: TransactionalId, identity: Identity, partition: TopicPartition, on_finding: OnFinding
    ) -> Cancel:
        """Find out whether ``identity``'s open transaction on a partition hangs. ``on_finding`` is called once, perhaps
        before this returns; None: the coordinator cannot be queried."""
        coordinator = self._coordinators.coordinator_of(transactional_id)
        coordinator_log = self._coordinators.partition_of(transactional_id)

        def confirmed(leads: bool) -> None:
            on_finding(
                finding_of(self._coordinators, self._cluster, transactional_id, identity, partition) if leads else None
            )

        if isinstance(coordinator, ErrorCode) or coordinator_log is None:
            confirmed(leads=True)  # no broker coordinates the id
            return nothing_to_cancel
        if coordinator == self._cluster.broker_id:
            return self._leadership.leads(coordinator_log, confirmed)
        leader = self._leader(transactional_id)

        def described(answer: object) -> None:
            if answer is UNREACHABLE or leader != self._leader(transactional_id):
                on_finding(None)
                return
            description = answer if isinstance(answer, TransactionDescription) else None
            awaited = () if description is None else description.partitions
            on_finding(classify(description, awaited, identity, partition))

        return self._messages.send(coordinator, DescribeTransaction(transactional_id), described)

    def _leader(self, name: TransactionalId) -> _Leader | None:
        leaders = self._leaders()
        return leaders[coordinator_partition(name, len(leaders))] if leaders else None

    def park_search(self, task: Task, wait: FindTransactionalId) -> None:
        def on_ids(ids: IdsByProducer, all_answered: bool) -> None:
            transactional_id = ids.get(wait.producer_id)
            refused = transactional_id is None and not all_answered
            error = CoordinatorRefusal(ErrorCode.COORDINATOR_NOT_AVAILABLE) if refused else None
            self._runnable.wake(task, transactional_id, error)

        task.forget = self.find_ids((wait.producer_id,), on_ids)

    def find_ids(self, producer_ids: Collection[int], on_ids: OnIds) -> Cancel:
        """Look up ids locally, then, if some are unknown, at all other coordinators. ``on_ids(ids, all_answered)`` is
        called once, perhaps before this returns.
        """
        leaders = self._leaders()
        others = {leader for leader, _epoch in leaders} - {self._cluster.broker_id}
        ids: dict[int, TransactionalId] = ids_of(self._coordinators, producer_ids)
        missing = frozenset(ProducerId(producer_id) for producer_id in producer_ids if producer_id not in ids)
        all_answered = NO_BROKER not in others and not self._coordinators.is_loading()
        in_flight: dict[BrokerId, Cancel] = dict.fromkeys(sorted(others - {NO_BROKER}), nothing_to_cancel)
        if not missing or not in_flight:
            on_ids(ids, all_answered)
            return nothing_to_cancel

        def answered(broker_id: BrokerId, answer: object) -> None:
            nonlocal all_answered
            if isinstance(answer, Mapping):
                ids.update(answer)
            else:
                all_answered = False
            del in_flight[broker_id]
            if not in_flight:
                on_ids(ids, all_answered and leaders == self._leaders())

        def cancel_all() -> None:
            for cancel in in_flight.values():
                cancel()

        for broker_id in list(in_flight):
            message = FindTransactionalIds(missing)
            in_flight[broker_id] = self._messages.send(broker_id, message, partial(answered, broker_id))
        return cancel_all
