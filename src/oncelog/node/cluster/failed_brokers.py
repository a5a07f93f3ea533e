"""Brokers that failed within the last half second, and the requests that wait until new leaders are elected.

A broker counts as failed when a connection to it breaks in the middle of a request or is refused, or when its
registration ends; until it answers, registers again, or ``FAILED_MS`` have passed. Clients ask for the new leader as
soon as their connections break, before the election. With the dead leader's name, or none, they would back off, so
Metadata and FindCoordinator wait for it (``UntilElected``).
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

# An election takes some tens of milliseconds; librdkafka backs off for a second.
FAILED_MS: Final = 500
# librdkafka destroys its handle of a broker that is not listed: partitions that move away from it then have no leader
# until the next refresh, and a transactional producer whose group coordinator it was waits in TxnOffsetCommit for ever.
DEPARTED_MS: Final = 5_000


class FailedBrokers:
    """Maintains ``Metadata.failed_brokers`` and ``departed_brokers``, and wakes the requests that wait."""

    def __init__(self, metadata: Metadata, deadlines: Deadlines, runnable: Runnable) -> None:
        self._metadata = metadata
        self._deadlines = deadlines
        self._runnable = runnable
        # Ends of the failed state.
        self._alarms: dict[BrokerId, Alarm] = {}
        self._departures: dict[BrokerId, Alarm] = {}
        # Registrations in which brokers failed and were not reached since.
        self._epochs: dict[BrokerId, int] = {}
        self._waiting: dict[Task, Callable[[], bool]] = {}

    def start(self) -> None:
        # After a restart of this broker, every absent registered broker counts as just departed.
        image = self._metadata.image
        for broker_id, record in image.broker_records.items():
            if broker_id not in image.brokers and record.endpoints and not record.unregistered:
                first = record.endpoints[0]
                broker = BrokerImage(
                    broker_id, first.host, first.port, record.rack, record.epoch, endpoints=record.endpoints
                )
                self._keep_listed(broker)

    def mark_failed(self, broker_id: BrokerId) -> None:
        """Count a registered broker as failed, once per registration."""
        broker = self._metadata.image.brokers.get(broker_id)
        # Unless it was reached in between: requests must not wait again and again while the tree cannot be written.
        if broker is not None and self._epochs.get(broker_id) != broker.epoch:
            self._epochs[broker_id] = broker.epoch
            self._begin(broker_id)

    def mark_reachable(self, broker_id: BrokerId) -> None:
        self._epochs.pop(broker_id, None)
        self._end(broker_id)

    def follow(self, image: ClusterImage, before: ClusterImage) -> None:
        """Compare two images: brokers that left have failed, brokers that registered are reachable."""
        if image.brokers is not before.brokers:
            for broker_id, broker in before.brokers.items():
                if broker_id not in image.brokers:
                    self._mark_departed(broker)
            for broker_id, broker in image.brokers.items():
                previous = before.brokers.get(broker_id)
                if previous is None or previous.epoch != broker.epoch:
                    self.mark_reachable(broker_id)
                    self._forget_departure(broker_id)
        self._wake_ready()

    def _mark_departed(self, broker: BrokerImage) -> None:
        broker_id = broker.broker_id
        # After a controlled shutdown no request waits: leaderships were moved before.
        if self._epochs.pop(broker_id, None) != broker.epoch and not broker.in_controlled_shutdown:
            self._begin(broker_id)
        self._keep_listed(broker)

    def _keep_listed(self, broker: BrokerImage) -> None:
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
            departed = self._metadata.departed_brokers
            self._metadata.departed_brokers = MappingProxyType(
                {other_id: departed[other_id] for other_id in self._departures}
            )

    def park(self, task: Task, wait: UntilElected) -> None:
        """Keep ``task`` until ``wait.ready()`` holds; at the latest when no broker counts as failed."""
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
            self._wake_ready()

    def _cancel(self, broker_id: BrokerId) -> bool:
        alarm = self._alarms.pop(broker_id, None)
        if alarm is not None:
            self._deadlines.cancel(alarm)
        return alarm is not None

    def _wake_ready(self) -> None:
        for task, ready in list(self._waiting.items()):
            if not task.waiting or ready():
                del self._waiting[task]
                self._runnable.wake(task)
