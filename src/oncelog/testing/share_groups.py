"""``broker.share``: what share groups hold in this moment (KIP-932), read from the brokers' memory without a request.

A leader forgets a share partition when the last member of the group has closed or is gone. What is left then is the
share coordinator's state; records that were still locked are available in it.

The records of a share partition that are not in its deliveries were never fetched, or their delivery is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from oncelog.handlers.broker.shares import LedSharePartition
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
        found: dict[tuple[str, int, str], list[Delivery]] = {}

        def add(partitions: Iterable[LedSharePartition]) -> None:
            for led in partitions:
                name, place = led.partition.topic, (led.partition.topic, led.partition.partition, led.key.group_id)
                is_wanted = topic in (None, name) and group_id in (None, led.key.group_id)
                if is_wanted and led.machine is not None and place not in found:
                    found[place] = list(_deliveries(led))

        def read_leader(server: Server) -> None:
            add(server.node.share.partitions.led_partitions)

        def read_coordinator(server: Server) -> None:
            if server.node.share.has_states:
                add(server.node.share.states.recorded())

        self._brokers.on_loops(read_leader)
        # A leader forgets nothing before its state is written: read later, a coordinator has what no leader had.
        self._brokers.on_loops(read_coordinator)
        deliveries = [each for part in found.values() for each in part]
        return sorted(deliveries, key=lambda each: (each.topic, each.partition, each.group_id, each.first_offset))


def _deliveries(led: LedSharePartition) -> Iterator[Delivery]:
    for records in () if led.machine is None else led.machine.in_flight():
        yield Delivery(
            topic=led.partition.topic,
            partition=led.partition.partition,
            group_id=led.key.group_id,
            first_offset=records.first_offset,
            last_offset=records.last_offset,
            state=records.delivery_state.name.lower(),
            delivery_count=records.delivery_count,
            member_id=records.member_id or None,
            locked_until_ms=records.locked_until_ms,
        )
