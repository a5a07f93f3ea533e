"""What a member of a group holds: its partitions, as whom, how far it got, and when to commit that.

Rules:
1. Partitions are held from ``assign`` to ``revoke``, whatever the coordinator thinks meanwhile. The generation in
   ``metadata`` is that under which they were taken over, never a newer one: offsets of records that were read before
   a rebalance must be refused after it, inside transactions too (KIP-447).
2. Only what was reported as processed is committed, and only of partitions that are held: at least once.
3. A partition without a committed offset begins where ``reset`` says; ``none`` refuses to choose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.client.machine.offsets import Committed, GroupMetadata, Membership
from oncelog.client.machine.positions import Fetched

AUTO_COMMIT_MS: Final = 5_000
TOPIC_CHECK_MS: Final = 30_000
"""How often a group's leader looks whether topics have appeared or grown."""
EARLIEST: Final = -2
LATEST: Final = -1
Reset = Literal["earliest", "latest", "none"]


class AssignedPartitions:
    """The machine; ``owned`` and ``metadata`` may be read, everything else goes through its methods."""

    def __init__(self, group: str, instance_id: str | None, reset: Reset, now_ms: int) -> None:
        self.owned: tuple[TopicPartition, ...] = ()
        self.metadata = GroupMetadata(group, instance_id=instance_id)
        self.is_assigned = False
        """Between ``assign`` and ``revoke``, also without a single partition."""
        self._reset: Final[Reset] = reset
        self._uncommitted: dict[TopicPartition, int] = {}
        self._commit_due_ms = now_ms + AUTO_COMMIT_MS

    @property
    def membership(self) -> Membership:
        """As whom to commit."""
        return Membership(*self.metadata[1:])

    @property
    def has_uncommitted(self) -> bool:
        """Whether anything is to be committed."""
        return bool(self._uncommitted)

    def assign(self, owned: Iterable[TopicPartition], generation: int, member_id: str) -> None:
        """These are the member's from now on."""
        self.owned = tuple(owned)
        self.metadata = self.metadata._replace(generation=generation, member_id=member_id)
        self.is_assigned = True
        self._uncommitted.clear()

    def revoke(self) -> None:
        """They are others' from now on. Who it was stays in ``metadata``, for what is under way to be fenced."""
        self.owned = ()
        self.is_assigned = False
        self._uncommitted.clear()

    def processed(self, partition: TopicPartition, next_offset: int) -> None:
        """Everything before ``next_offset`` may be committed."""
        self._uncommitted[partition] = next_offset

    def is_commit_due(self, now_ms: int) -> bool:
        """Whether there is something to commit and it is time to."""
        return bool(self._uncommitted) and now_ms >= self._commit_due_ms

    def take_uncommitted(self, now_ms: int) -> dict[TopicPartition, Committed]:
        """What is to be committed now; the next time is put off."""
        offsets = {p: Committed(offset) for p, offset in self._uncommitted.items() if p in self.owned}
        self._uncommitted.clear()
        self._commit_due_ms = now_ms + AUTO_COMMIT_MS
        return offsets

    def start(
        self, wanted: Iterable[TopicPartition], committed: Mapping[TopicPartition, Committed]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Where to begin: known positions, and what to ask ListOffsets for. Raises ClientError for ``none``."""
        positions = {p: committed[p].offset for p in wanted if p in committed and committed[p].offset >= 0}
        missing = [p for p in wanted if p not in positions]
        if missing and self._reset == "none":
            raise ClientError(
                f"group {self.metadata.group!r} has no offset for {missing[0]}, and may not choose one: reset is 'none'"
            )
        return positions, self.beginnings(missing)

    def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """What to ask ListOffsets for, of partitions that have no valid position."""
        return dict.fromkeys(partitions, EARLIEST if self._reset == "earliest" else LATEST)

    def is_out_of_range(self, fetched: Fetched) -> bool:
        """Whether the position is to be reset because its offset is not there. Raises BrokerRefused for other errors.

        False says that ``fetched`` is records.
        """
        if not fetched.error_code:
            return False
        if fetched.error_code != ErrorCode.OFFSET_OUT_OF_RANGE or self._reset == "none":
            raise BrokerRefused(fetched.error_code, f"fetch from {fetched.partition} at offset {fetched.position}")
        return True
