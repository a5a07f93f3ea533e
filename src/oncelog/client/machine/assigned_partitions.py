"""The partitions assigned to a group member: its generation, its processed offsets, and when to commit them.

Rules:
1. Partitions are assigned from ``assign`` to ``revoke``, whatever the coordinator decides meanwhile. The generation in
   ``metadata`` is that of ``assign``, never a newer one: offsets of records read before a rebalance must be refused
   after it, inside transactions too (KIP-447). In the consumer protocol ``renew`` has the member's epoch, as long as
   the partitions cannot belong to others.
2. Only processed offsets of assigned partitions are committed. They stay uncommitted until the commit is answered; an
   interrupted or failed commit is repeated.
3. A partition without a committed offset starts as ``reset`` says; ``none`` raises.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.client.machine.offsets import Committed, GroupMetadata, Membership
from oncelog.client.machine.positions import Fetched

AUTO_COMMIT_MS: Final = 5_000
TOPIC_CHECK_MS: Final = 30_000
"""The interval at which a group's leader checks for new topics and partitions."""
EARLIEST: Final = -2
LATEST: Final = -1
Reset = Literal["earliest", "latest", "none"]


class AssignedPartitions:
    def __init__(self, group: str, instance_id: str | None, reset: Reset, now_ms: int) -> None:
        self.owned: tuple[TopicPartition, ...] = ()
        self.metadata = GroupMetadata(group, instance_id=instance_id)
        self.is_assigned = False
        """True between ``assign`` and ``revoke``, even without partitions."""
        self._reset: Final[Reset] = reset
        self._uncommitted: dict[TopicPartition, int] = {}
        self._commit_due_ms = now_ms + AUTO_COMMIT_MS

    @property
    def membership(self) -> Membership:
        return Membership(*self.metadata[1:])

    @property
    def has_uncommitted(self) -> bool:
        return bool(self._uncommitted)

    def assign(self, owned: Iterable[TopicPartition], generation: int, member_id: str) -> None:
        """Assign ``owned`` under a generation; processed offsets of earlier ones are dropped."""
        self.owned = tuple(owned)
        self.metadata = self.metadata._replace(generation=generation, member_id=member_id)
        self.is_assigned = True
        self._uncommitted.clear()

    def extend(self, partitions: Iterable[TopicPartition], epoch: int, member_id: str) -> None:
        """Assign ``partitions`` too, in the consumer protocol."""
        self.owned = (*self.owned, *partitions)
        self.is_assigned = True
        self.renew(epoch, member_id)

    def reduce(self, partitions: Collection[TopicPartition]) -> None:
        """Drop ``partitions`` from the assignment, and their processed offsets."""
        partitions = set(partitions)
        self.owned = tuple(partition for partition in self.owned if partition not in partitions)
        self._uncommitted = {p: offset for p, offset in self._uncommitted.items() if p not in partitions}

    def renew(self, epoch: int, member_id: str) -> None:
        """The member has a newer epoch, under which it still owns the partitions: consumer protocol alone."""
        self.metadata = self.metadata._replace(generation=epoch, member_id=member_id)

    def revoke(self) -> None:
        """Drop the assignment. ``metadata`` keeps the generation, so that commits under way are fenced."""
        self.owned = ()
        self.is_assigned = False
        self._uncommitted.clear()

    def processed(self, partition: TopicPartition, next_offset: int) -> None:
        """Mark records before ``next_offset`` as processed: they may be committed."""
        self._uncommitted[partition] = next_offset

    def is_commit_due(self, now_ms: int) -> bool:
        return bool(self._uncommitted) and now_ms >= self._commit_due_ms

    def begin_commit(self, now_ms: int) -> dict[TopicPartition, Committed]:
        self._commit_due_ms = now_ms + AUTO_COMMIT_MS
        owned = set(self.owned)
        return {p: Committed(offset) for p, offset in self._uncommitted.items() if p in owned}

    def end_commit(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Drop the offsets of an answered commit; those processed since stay."""
        answered = {partition: committed.offset for partition, committed in offsets.items()}
        owned = set(self.owned)
        self._uncommitted = {p: o for p, o in self._uncommitted.items() if p in owned and answered.get(p) != o}

    def start(
        self, partitions: Iterable[TopicPartition], committed: Mapping[TopicPartition, Committed]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """The known start positions, and the timestamps to request from ListOffsets for the others.

        Raises ClientError if there are others and ``reset`` is ``none``.
        """
        positions = {
            partition: committed[partition].offset
            for partition in partitions
            if partition in committed and committed[partition].offset >= 0
        }
        missing = [partition for partition in partitions if partition not in positions]
        if missing and self._reset == "none":
            raise ClientError(
                f"group {self.metadata.group!r} has no offset for {missing[0]} and its reset is 'none': "
                "commit an offset first, or set the reset to earliest or latest"
            )
        return positions, self.beginnings(missing)

    def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The timestamps to request from ListOffsets for partitions without a valid position."""
        return dict.fromkeys(partitions, EARLIEST if self._reset == "earliest" else LATEST)

    def is_out_of_range(self, fetched: Fetched) -> bool:
        """True if the position is outside the log and has to be reset; False if ``fetched`` has records.

        Raises BrokerRefused for other errors, and if ``reset`` is ``none``.
        """
        if not fetched.error_code:
            return False
        if fetched.error_code != ErrorCode.OFFSET_OUT_OF_RANGE or self._reset == "none":
            raise BrokerRefused(fetched.error_code, f"fetch from {fetched.partition} at offset {fetched.position}")
        return True


def without(
    positions: dict[TopicPartition, int] | None, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int] | None:
    """``positions`` of other partitions; None if there are none."""
    return {p: offset for p, offset in (positions or {}).items() if p not in partitions} or None
