"""The brokers that were lost a moment ago, and the requests that wait until others are elected in their place.

A broker is lost when a connection to it breaks in the middle of a request, or is refused, and when its registration
ends; until it answers, registers again, or half a second has passed. Clients ask who leads as soon as their own
connections to it break, which is before anybody is elected. Named the dead leader once more, or none, librdkafka asks
again only when its timer of a second comes round, and others after a back-off; an election takes some tens of
milliseconds. So Metadata and FindCoordinator wait for it (``UntilElected``).

A broker that has left, stopped cleanly or not, is named among the brokers for some seconds more
(``Metadata.departed_brokers``): librdkafka puts an end to a broker that is not. Partitions that are on their way from
it to their new leaders are then left without any until that timer, and a transactional producer that knows it as its
group's coordinator waits for it in TxnOffsetCommit and never asks for another one. One that stops gave its leaderships
away before, so that nothing waits for an election. A broker that starts knows of those that are not there only that
they were: each may have left a moment before.

A broker is lost once in a registration, unless it was reached in between: where the tree cannot be written nobody is
elected, and nobody is to wait for that with every request.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from oncelog.core.controller.image.model import BrokerImage

if TYPE_CHECKING:
    from oncelog.base.ids import BrokerId
    from oncelog.core.controller.image.cluster_image import ClusterImage
    from oncelog.handlers.broker.waits import UntilElected
    from oncelog.node.cluster.metadata import Metadata
    from oncelog.node.kernel.deadlines import Alarm, Deadlines
    from oncelog.node.kernel.tasks import Runnable, Task

FAILED_MS: Final = 500
DEPARTED_MS: Final = 5_000


class FailedBrokers:
    """Keeps the set of lost brokers, ``Metadata.failed_brokers``, and who waits for an election."""

    def __init__(self, metadata: Metadata, deadlines: Deadlines, runnable: Runnable) -> None:
        self._metadata = metadata
        self._deadlines = deadlines
        self._runnable = runnable
        self._alarms: dict[BrokerId, Alarm] = {}
        """The end of being lost."""
        self._departures: dict[BrokerId, Alarm] = {}
        self._epochs: dict[BrokerId, int] = {}
        """The registration in which a broker was lost last and not reached since."""
        self._waiting: dict[Task, Callable[[], bool]] = {}

    def start(self) -> None:
        """Count every broker that is recorded, and was not taken away for good, as one that has left just now."""
        image = self._metadata.image
        for broker_id, record in image.broker_records.items():
            if broker_id not in image.brokers and record.endpoints and not record.unregistered:
                first = record.endpoints[0]
                broker = BrokerImage(
                    broker_id, first.host, first.port, record.rack, record.epoch, endpoints=record.endpoints
                )
                self._name_on(broker)

    def mark_failed(self, broker_id: BrokerId) -> None:
        """Count a registered broker as lost."""
        broker = self._metadata.image.brokers.get(broker_id)
        if broker is not None and self._epochs.get(broker_id) != broker.epoch:
            self._epochs[broker_id] = broker.epoch
            self._begin(broker_id)

    def mark_reachable(self, broker_id: BrokerId) -> None:
        self._epochs.pop(broker_id, None)
        self._end(broker_id)

    def follow(self, image: ClusterImage, before: ClusterImage) -> None:
        """Follow a change of the image: who has left is lost, who has registered anew is there."""
        if image.brokers is not before.brokers:
            for broker_id, broker in before.brokers.items():
                if broker_id not in image.brokers:
                    self._departs(broker)
            for broker_id, broker in image.brokers.items():
                known = before.brokers.get(broker_id)
                if known is None or known.epoch != broker.epoch:
                    self.mark_reachable(broker_id)
                    self._forget_departure(broker_id)
        self._ask_waiting()

    def _departs(self, broker: BrokerImage) -> None:
        broker_id = broker.broker_id
        if self._epochs.pop(broker_id, None) != broker.epoch and not broker.in_controlled_shutdown:
            self._begin(broker_id)
        self._name_on(broker)

    def _name_on(self, broker: BrokerImage) -> None:
        broker_id = broker.broker_id
        self._forget_departure(broker_id)
        self._departures[broker_id] = self._deadlines.at(
            self._deadlines.now_ms + DEPARTED_MS, lambda _now_ms: self._forget_departure(broker_id)
        )
        self._metadata.departed_brokers = MappingProxyType({**self._metadata.departed_brokers, broker_id: broker})

    def _forget_departure(self, broker_id: BrokerId) -> None:
        alarm = self._departures.pop(broker_id, None)
        if alarm is not None:
            self._deadlines.cancel(alarm)
            known = self._metadata.departed_brokers
            self._metadata.departed_brokers = MappingProxyType({each: known[each] for each in self._departures})

    def park(self, task: Task, wait: UntilElected) -> None:
        """Let ``task`` go on when ``wait.ready()`` holds, which it does when nobody is lost any more."""
        self._waiting[task] = wait.ready
        task.forget = partial(self._waiting.pop, task, None)

    def _begin(self, broker_id: BrokerId) -> None:
        self._cancel(broker_id)
        end_ms = self._deadlines.now_ms + FAILED_MS
        self._alarms[broker_id] = self._deadlines.at(end_ms, lambda _now_ms: self._end(broker_id))
        self._metadata.failed_brokers = frozenset(self._alarms)

    def _end(self, broker_id: BrokerId) -> None:
        if self._cancel(broker_id):
            self._metadata.failed_brokers = frozenset(self._alarms)
            self._ask_waiting()

    def _cancel(self, broker_id: BrokerId) -> bool:
        alarm = self._alarms.pop(broker_id, None)
        if alarm is not None:
            self._deadlines.cancel(alarm)
        return alarm is not None

    def _ask_waiting(self) -> None:
        for task, ready in list(self._waiting.items()):
            if not task.waiting or ready():
                del self._waiting[task]
                self._runnable.wake(task)
