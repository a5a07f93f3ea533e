"""The controller's log lines: brokers that join and leave, and elections with their causes.

Elections are counted over the commits of a round and logged once, when every partition is settled.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from oncelog.base.ids import NO_BROKER, BrokerId
from oncelog.core.controller.brokers.suspicions import suspected_by
from oncelog.node.kernel.events import Report

if TYPE_CHECKING:
    from oncelog.core.controller.image.cluster_image import ClusterImage, ImageDelta
    from oncelog.core.controller.image.model import BrokerImage, PartitionImage


class ControllerReport:
    def __init__(self) -> None:
        self.elections = 0
        """Partitions that got another leader, or none."""
        self._causes: Counter[str] = Counter()
        self._leaderless = 0
        self._lines: list[Report] = []

    def follow(self, delta: ImageDelta, before: ClusterImage) -> None:
        image = delta.image
        if (image.controller_id, image.controller_epoch) != (before.controller_id, before.controller_epoch):
            self._log(_succession(image))
        if delta.brokers:
            for broker_id in sorted({*image.brokers, *before.brokers}):
                line = _broker_line(before, before.brokers.get(broker_id), image.brokers.get(broker_id))
                if line is not None:
                    self._log(line)
        for name in delta.altered:
            old = before.topics.get(name)
            if old is not None:
                for was, now in zip(old.partitions, image.topics[name].partitions, strict=False):
                    if now.leader_epoch > was.leader_epoch:
                        self._elected(was, now, image)

    def _elected(self, was: PartitionImage, now: PartitionImage, image: ClusterImage) -> None:
        self.elections += 1
        self._causes[_election_cause(was, image)] += 1
        self._leaderless += now.leader == NO_BROKER
        self._leaderless -= was.leader == NO_BROKER and bool(self._leaderless)

    def _log(self, message: str, level: str = "info") -> None:
        self._lines.append(Report(level, message))

    def take(self, *, settled: bool) -> list[Report]:
        """Return the lines to be written now; those about elections only once all partitions are ``settled``."""
        if settled and self._causes:
            count = self._causes.total()
            causes = ", ".join(f"{number} {cause}" for cause, number in self._causes.items())
            self._log(f"elected leaders of {count} partition{'' if count == 1 else 's'}: {causes}")
            if self._leaderless:
                self._log(f"{self._leaderless} of them have no leader: no replica that may lead is alive", "warning")
            self._causes.clear()
            self._leaderless = 0
        lines, self._lines = self._lines, []
        return lines


def _succession(image: ClusterImage) -> str:
    up = ", ".join(map(str, sorted(image.brokers)))
    return f"broker {image.controller_id} is the controller of epoch {image.controller_epoch}; brokers up: {up}"


def _broker_line(before: ClusterImage, was: BrokerImage | None, now: BrokerImage | None) -> str | None:
    if now is None:
        assert was is not None
        return f"broker {was.broker_id} has left the cluster: {_departure_cause(before, was)}"
    location = f"broker {now.broker_id} at {now.host}:{now.port}"
    if was is None:
        return f"{location} has joined the cluster{', fenced: its replicas may lack records' if now.fenced else ''}"
    if was.epoch != now.epoch:
        return f"{location} has registered again"
    if was.fenced and not now.fenced:
        return f"{location} is no longer fenced"
    if now.in_controlled_shutdown and not was.in_controlled_shutdown:
        return f"{location} is stopping and gives its leaderships away"
    if now.has_full_disk is not was.has_full_disk:
        return (
            f"{location} has {'a full disk, gives its leaderships away' if now.has_full_disk else 'room on its disk'}"
        )
    return None


def _departure_cause(before: ClusterImage, broker: BrokerImage) -> str:
    if broker.in_controlled_shutdown:
        return "stopped"
    observers = sorted(suspected_by(before, broker))
    if observers:
        return f"its process stood still, as seen by broker {', '.join(map(str, observers))}"
    return "its session has ended"


def _election_cause(was: PartitionImage, image: ClusterImage) -> str:
    leader: BrokerId = was.leader
    if leader == NO_BROKER:
        return "that had no leader"
    broker = image.brokers.get(leader)
    if broker is None:
        return f"because broker {leader} has left"
    if broker.epoch != was.leader_broker_epoch:
        return f"because broker {leader} has registered again"
    if broker.fenced:
        return f"because broker {leader} is fenced"
    if broker.in_controlled_shutdown:
        return f"because broker {leader} is stopping"
    if broker.has_full_disk:
        return f"because the disk of broker {leader} is full"
    return f"by choice, from broker {leader}"
