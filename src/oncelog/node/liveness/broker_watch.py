"""Watches the other brokers: those that the controller's duties name by a connection, all for frozen processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.node.brokers.broker_links import LinkPurpose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from oncelog.base.ids import BrokerId
    from oncelog.core.controller.image.cluster_image import ClusterImage, ImageDelta
    from oncelog.node.brokers.broker_links import BrokerLinks
    from oncelog.node.cluster.metadata import Metadata
    from oncelog.node.cluster.metadata_log import MetadataLog
    from oncelog.node.kernel.deadlines import Deadlines
    from oncelog.node.kernel.events import Outbox
    from oncelog.node.liveness.freeze_watch import FreezeWatch

LONGEST_SESSION_MS: Final = 40_000
"""ZooKeeper's longest session (20 ``tickTime``), unless configured otherwise."""


class BrokerWatch:
    def __init__(
        self,
        metadata: Metadata,
        metadata_log: MetadataLog,
        links: BrokerLinks,
        deadlines: Deadlines,
        outbox: Outbox,
        brokers_to_connect: Callable[[], Iterable[BrokerId]],
    ) -> None:
        self._metadata = metadata
        self._metadata_log = metadata_log
        self._links = links
        self._deadlines = deadlines
        self._outbox = outbox
        self._brokers_to_connect = brokers_to_connect
        self.freezes: FreezeWatch | None = None
        """Made with the first other broker."""

    def connect(self) -> None:
        for broker_id in self._brokers_to_connect():
            self._links.connect(broker_id, LinkPurpose.CONTROL)
        if self.freezes is None and len(self._metadata.image.brokers) > 1:
            self.freezes = self._make_freeze_watch()

    def follow(self, delta: ImageDelta, before: ClusterImage) -> None:
        if delta.brokers or delta.image.controller_id != before.controller_id:
            self.connect()
        if self.freezes is not None:
            self.freezes.follow(delta.image, before)

    def longest_pause_ms(self, session_ms: int) -> int:
        """The pause of this process after which it reads the metadata before it answers (``StoodStill``): others may
        have taken over."""
        longest_ms = min(session_ms, LONGEST_SESSION_MS) // 2
        return longest_ms if self.freezes is None else min(longest_ms, self.freezes.longest_pause_ms)

    def _make_freeze_watch(self) -> FreezeWatch | None:
        timeout_ms = int(self._metadata.config.get("oncelog.broker.freeze.timeout.ms"))
        if not timeout_ms:
            return None
        from oncelog.node.liveness.freeze_watch import FreezeWatch

        return FreezeWatch(self._metadata, self._metadata_log, self._links, self._deadlines, self._outbox, timeout_ms)
