"""The partitions assigned to a member of a group: its generation, the offsets it processed, and when to commit them.

Rules:
1. Partitions are assigned from ``assign`` to ``revoke``, whatever the coordinator decides meanwhile. The generation in
   ``metadata`` is that of ``assign``, never a newer one: offsets of records that were read before a rebalance must be
   refused after it, inside transactions too (KIP-447).
2. Only what was reported as processed is committed, and only of partitions still assigned: at least once. It stays
   uncommitted until the commit was answered: one that was interrupted or failed is made again.
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
"""Interval at which a group's leader checks whether topics have appeared or grown."""
EARLIEST: Final = -2
LATEST: Final = -1
Reset = Literal["earliest", "latest", "none"]


class AssignedPartitions:
    """The machine; ``owned`` and ``metadata`` may be read, everything else goes through its methods."""

    def __init__(self, group: str, instance_id: str | None, reset: Reset, now_ms: int) -> None:
        self.owned: tuple[TopicPartition, ...] = ()
        self.metadata = GroupMetadata(group, instance_id=instance_id)
        self.is_assigned = False
        """True between ``assign`` and ``revoke``, also without a single partition."""
        self._reset: Final[Reset] = reset
        self._uncommitted: dict[TopicPartition, int] = {}
        self._commit_due_ms = now_ms + AUTO_COMMIT_MS

    @property
    def membership(self) -> Membership:
        """The member and generation to commit under."""
        return Membership(*self.metadata[1:])

    @property
    def has_uncommitted(self) -> bool:
        """True if processed offsets wait to be committed."""
        return bool(self._uncommitted)

    def assign(self, owned: Iterable[TopicPartition], generation: int, member_id: str) -> None:
        """Assign ``owned`` to the member under a generation; processed offsets of earlier ones are dropped."""
        self.owned = tuple(owned)
        self.metadata = self.metadata._replace(generation=generation, member_id=member_id)
        self.is_assigned = True
        self._uncommitted.clear()

    def revoke(self) -> None:
        """Drop the assignment. ``metadata`` keeps the generation, so that commits under way are fenced."""
        self.owned = ()
        self.is_assigned = False
        self._uncommitted.clear()

    def processed(self, partition: TopicPartition, next_offset: int) -> None:
        """Mark records before ``next_offset`` as processed: they may be committed."""
        self._uncommitted[partition] = next_offset

    def is_commit_due(self, now_ms: int) -> bool:
        """True if there are offsets to commit and the interval is over."""
        return bool(self._uncommitted) and now_ms >= self._commit_due_ms

    def begin_commit(self, now_ms: int) -> dict[TopicPartition, Committed]:
        """The offsets to commit now; report them to ``end_commit``. The next commit is due an interval later."""
        self._commit_due_ms = now_ms + AUTO_COMMIT_MS
        return {p: Committed(offset) for p, offset in self._uncommitted.items() if p in self.owned}

    def end_commit(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Drop the offsets of a commit that was answered; those processed since then stay."""
        answered = {partition: committed.offset for partition, committed in offsets.items()}
        self._uncommitted = {p: o for p, o in self._uncommitted.items() if p in self.owned and answered.get(p) != o}

    def start(
        self, wanted: Iterable[TopicPartition], committed: Mapping[TopicPartition, Committed]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """The start positions that are known, and the timestamps to ask ListOffsets for the others.

        Raises ClientError when there are others and ``reset`` is ``none``.
        """
        positions = {p: committed[p].offset for p in wanted if p in committed and committed[p].offset >= 0}
        missing = [p for p in wanted if p not in positions]
        if missing and self._reset == "none":
            raise ClientError(
                f"group {self.metadata.group!r} has no offset for {missing[0]} and its reset is 'none': "
                "commit an offset first, or set the reset to earliest or latest"
            )
        return positions, self.beginnings(missing)

    def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The timestamps to ask ListOffsets for, of partitions that have no valid position."""
        return dict.fromkeys(partitions, EARLIEST if self._reset == "earliest" else LATEST)

    def is_out_of_range(self, fetched: Fetched) -> bool:
        """True if the fetch position is outside the log and is to be reset; False if ``fetched`` is records.

        Raises BrokerRefused for other errors, and for this one when ``reset`` is ``none``.
        """
        if not fetched.error_code:
            return False
        if fetched.error_code != ErrorCode.OFFSET_OUT_OF_RANGE or self._reset == "none":
            raise BrokerRefused(fetched.error_code, f"fetch from {fetched.partition} at offset {fetched.position}")
        return True
