"""The parts of a node that replication uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from oncelog.node.brokers.broker_links import BrokerLinks
    from oncelog.node.cluster.metadata import Metadata
    from oncelog.node.kernel.deadlines import Deadlines
    from oncelog.node.kernel.events import Outbox
    from oncelog.node.logs.delayed_fetches import DelayedFetches
    from oncelog.node.logs.directory_health import DirectoryHealth
    from oncelog.node.logs.group_commit import GroupCommit


class ReplicationServices(NamedTuple):
    links: BrokerLinks
    metadata: Metadata
    deadlines: Deadlines
    group_commit: GroupCommit
    delayed_fetches: DelayedFetches
    outbox: Outbox
    persist_log_starts: Callable[[], None]
    """Makes the log starts of all replicas durable. Raises OSError."""
    directory: DirectoryHealth
