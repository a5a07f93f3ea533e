"""``broker.share``: what share groups hold in this moment (KIP-932), read from the brokers' memory without a request.

A leader forgets a share partition when the last member of the group has closed or is gone. What is left then is the
share coordinator's state; records that were still locked are available in it.

The records of a share partition that are not in its deliveries were never fetched, or their delivery is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from oncelog.core.share.partition import SharePartition
    from oncelog.core.share_state.model import ShareKey
    from oncelog.records.internal.share_state_records import SnapshotValue
    from oncelog.runtime.server import Server


@dataclass(frozen=True, order=True)
class Delivery:
    """Successive records of a partition in one state; both offsets are inclusive."""

    topic: str
    partition: int
    group_id: str
    first_offset: int
    last_offset: int
    state: str
    """``"acquired"`` while a member holds the lock, ``"available"`` to be delivered again, ``"acknowledged"``,
    ``"archiving"`` while its dead letter is written, or ``"archived"``."""
    delivery_count: int
    """Deliveries so far."""
    member_id: str | None
    """The holder of the lock."""
    locked_until_ms: int | None
    """When the lock expires, in milliseconds of the broker's clock since 1970."""


class Brokers(Protocol):
    def on_loops(self, work: Callable[[Server], None]) -> None: ...


class ShareGroups:
    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def deliveries(self, topic: str | None = None, group_id: str | None = None) -> list[Delivery]:
        """The records between each share partition's start offset and its last fetched record, in order of topic,
        partition, group and offset; of one topic or group if they are given."""
        led: dict[ShareKey, list[Delivery]] = {}
        recorded: dict[ShareKey, list[Delivery]] = {}

        def is_wanted(key: ShareKey, name: str) -> bool:
            return topic in (None, name) and group_id in (None, key.group_id)

        def read_leader(server: Server) -> None:
            for each in server.node.share.partitions.led_partitions:
                if each.machine is not None and is_wanted(each.key, each.partition.topic):
                    led[each.key] = list(_deliveries(each.key, each.partition.topic, each.machine))

        def read_coordinator(server: Server) -> None:
            if not server.node.share.has_states:
                return
            for key, state in server.node.share.states.recorded().items():
                image = server.node.cluster.image.topic_of_id(key.topic_id)
                if image is not None and key not in led and is_wanted(key, image.name):
                    recorded[key] = list(_deliveries(key, image.name, _loaded(state)))

        self._brokers.on_loops(read_leader)
        # A leader forgets nothing before its state is written: read later, a coordinator has what no leader had.
        self._brokers.on_loops(read_coordinator)
        deliveries = [each for part in (recorded | led).values() for each in part]
        return sorted(deliveries, key=lambda each: (each.topic, each.partition, each.group_id, each.first_offset))


def _loaded(state: SnapshotValue) -> SharePartition:
    """The share partition as the next leader will begin with it."""
    from oncelog.base.ids import Offset
    from oncelog.core.share.model import ShareSettings, ShareState, StateBatch
    from oncelog.core.share.partition import SharePartition

    batches = [StateBatch(*batch) for batch in state.batches]
    # Not known before the first write: there are no batches then.
    start = Offset(max(0, state.start_offset))
    return SharePartition(ShareState(state.state_epoch, start, -1, batches), ShareSettings())


def _deliveries(key: ShareKey, topic: str, machine: SharePartition) -> Iterator[Delivery]:
    for records in machine.in_flight():
        yield Delivery(
            topic=topic,
            partition=key.partition,
            group_id=key.group_id,
            first_offset=records.first_offset,
            last_offset=records.last_offset,
            state=records.delivery_state.name.lower(),
            delivery_count=records.delivery_count,
            member_id=records.member_id or None,
            locked_until_ms=records.locked_until_ms,
        )
