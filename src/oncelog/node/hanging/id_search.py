"""The search for transactional ids by producer, among all coordinators.

An open transaction has no name here where its name was lost: with the file of names, or in a power cut. It may be
another broker's, prepared or decided there, so that the leader cannot judge it by what its own coordinators know. Each
broker that leads a partition of ``__transaction_state`` is asked; all have answered only if none of these partitions
has changed its leader in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_BROKER, TRANSACTION_STATE, BrokerId, LeaderEpoch, ProducerId, TransactionalId
from oncelog.handlers.broker.context import CoordinatorRefusal
from oncelog.handlers.transactions.findings import ids_of
from oncelog.node.brokers.messages import BrokerMessages, FindTransactionalIds, Forget, nothing_to_forget

if TYPE_CHECKING:
    from oncelog.handlers.broker.ports import ClusterView
    from oncelog.handlers.broker.waits import FindTransactionalId
    from oncelog.node.coordinators.transaction_coordinators import TransactionCoordinators
    from oncelog.node.kernel.tasks import Runnable, Task

Names = Mapping[int, TransactionalId]
"""The transactional id by producer id."""
Found = Callable[[Names, bool], object]
Leaders = tuple[tuple[BrokerId, LeaderEpoch], ...]


class TransactionalIdSearch:
    """Searches all coordinators for the transactional ids of producers that have lost theirs."""

    def __init__(
        self,
        messages: BrokerMessages,
        coordinators: TransactionCoordinators,
        cluster: ClusterView,
        runnable: Runnable,
    ) -> None:
        self._messages = messages
        self._coordinators = coordinators
        self._cluster = cluster
        self._runnable = runnable

    def find(self, producer_ids: Collection[int], found: Found) -> Forget:
        """Ask the coordinators here, and all others if these do not know all producers. ``found(names, all_answered)``
        is called once, perhaps before this returns. The result forgets the question."""
        leaders = self._leaders()
        others = {leader for leader, _epoch in leaders} - {self._cluster.broker_id}
        names: dict[int, TransactionalId] = ids_of(self._coordinators, producer_ids)
        missing = frozenset(ProducerId(each) for each in producer_ids if each not in names)
        all_answered = NO_BROKER not in others and not self._coordinators.is_loading()
        unanswered: dict[BrokerId, Forget] = dict.fromkeys(sorted(others - {NO_BROKER}), nothing_to_forget)
        if not missing or not unanswered:
            found(names, all_answered)
            return nothing_to_forget

        def answered(broker_id: BrokerId, answer: object) -> None:
            nonlocal all_answered
            if isinstance(answer, Mapping):
                names.update(answer)
            else:
                all_answered = False
            del unanswered[broker_id]
            if not unanswered:
                found(names, all_answered and leaders == self._leaders())

        for broker_id in list(unanswered):
            forget = self._messages.send(broker_id, FindTransactionalIds(missing), partial(answered, broker_id))
            unanswered[broker_id] = forget
        return partial(_forget_all, unanswered)

    def park(self, task: Task, wait: FindTransactionalId) -> None:
        """Keep a request until the coordinators have answered."""

        def found(names: Names, all_answered: bool) -> None:
            name = names.get(wait.producer_id)
            refused = name is None and not all_answered
            error = CoordinatorRefusal(ErrorCode.COORDINATOR_NOT_AVAILABLE) if refused else None
            self._runnable.wake(task, name, error)

        task.forget = self.find((wait.producer_id,), found)

    def _leaders(self) -> Leaders:
        """The leader of each partition of ``__transaction_state``, with its epoch."""
        topic = self._cluster.image.topics.get(TRANSACTION_STATE)
        partitions = () if topic is None else topic.partitions
        return tuple((partition.leader, partition.leader_epoch) for partition in partitions)


def _forget_all(unanswered: Mapping[BrokerId, Forget]) -> None:
    for forget in unanswered.values():
        forget()
