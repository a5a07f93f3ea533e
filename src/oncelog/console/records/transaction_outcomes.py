"""Transactions whose outcome is not known where their records are met: told when a marker passes, or at the end.

The rule: an outcome is told by a marker that was read, or, at the end, by the leader that has the transaction open.
What neither knows is ``ended``: its marker lies where nobody has read.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from oncelog.admin.transactions.producers import describe_producers
from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.machine.positions import Fetched
from oncelog.console.records.record_states import ENDED, OPEN, marker_outcome
from oncelog.records.batch import BatchHeader

MOST_WAITING: Final = 4000
"""Records whose outcome is waited for; of more, those met first are given up."""


class Settled(NamedTuple):
    """A record that was told before, and what became of its transaction."""

    where: TopicPartition
    offset: int
    state: str


class Outcomes:
    """The records met so far whose outcome is open, by partition and producer."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[tuple[TopicPartition, int], list[int]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def wait_for(self, where: TopicPartition, producer_id: int, offset: int) -> None:
        """Tell the outcome of this record later."""
        self._waiting.setdefault((where, producer_id), []).append(offset)
        self._count += 1
        while self._count > MOST_WAITING:
            self._count -= len(self._waiting.popitem(last=False)[1])

    def settled_by(self, fetched: Fetched, at: int, header: BatchHeader) -> list[Settled]:
        """The records that a control batch of an answer decides. Raises CorruptBatch."""
        key = (fetched.partition, header.producer_id)
        if key not in self._waiting or (outcome := marker_outcome(fetched, at, header)) is None:
            return []
        offsets = self._waiting.pop(key)
        self._count -= len(offsets)
        return [Settled(fetched.partition, offset, outcome) for offset in offsets]

    def by_leaders(self, client: Client) -> list[Settled]:
        """The outcomes that are left: open where the leader says so, else ended. Raises ClientError."""
        if not self._waiting:
            return []
        found = describe_producers(client, sorted({where for where, _ in self._waiting}), open_only=True)
        opened = {(row.where, row.producer_id): row.start_offset for row in found.rows}
        settled = []
        for (where, producer_id), offsets in self._waiting.items():
            if where in found.failed:
                continue  # Nobody has said anything about them.
            begins = opened.get((where, producer_id))
            for offset in offsets:
                is_open = begins is not None and offset >= begins
                settled.append(Settled(where, offset, OPEN if is_open else ENDED))
        self._waiting.clear()
        self._count = 0
        return settled
