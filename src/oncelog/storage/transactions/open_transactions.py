"""The open transactions of a directory's logs, with their transactional ids and start times.

Producer state lacks ids and times, which operators and the search for hanging transactions need. Logs report begins and
ends; the node takes new transactions from :attr:`OpenTransactions.begun` and decides when ids are written.

Invariant: ``partitions`` holds exactly the open transactions of the directory's producer states, and no partition
without one, so that a search need not visit all logs.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakValueDictionary

from oncelog.base.ids import TopicPartition
from oncelog.ports import Files
from oncelog.storage.transactions import transactional_ids
from oncelog.storage.transactions.transactional_ids import KnownTransaction

if TYPE_CHECKING:
    from oncelog.core.producers.state import ProducerState
    from oncelog.storage.segment.segments import Segments

MAX_STALE_ENTRIES: Final = 64
"""Entries of ended transactions that a file may hold before it is rewritten."""


class TransactionalLog(Protocol):
    """The part of a log in which open transactions are found."""

    files: Files
    directory: str
    partition: TopicPartition
    producers: ProducerState
    segments: Segments


class OpenTransaction:
    """``transactional_id`` is None if unknown (older data)."""

    __slots__ = (
        "__weakref__",
        "ended",
        "epoch",
        "partition",
        "producer_id",
        "start_offset",
        "started_ms",
        "transactional_id",
        "verdict",
        "written",
    )

    def __init__(
        self,
        partition: TopicPartition,
        producer_id: int,
        epoch: int,
        start_offset: int,
        started_ms: int,
        transactional_id: str | None,
    ) -> None:
        self.partition = partition
        self.producer_id = producer_id
        self.epoch = epoch
        """The epoch at its begin; the producer state has the current one."""
        self.start_offset = start_offset
        self.started_ms = started_ms
        """Append time of its first batch here; if unknown, that batch's own timestamp."""
        self.transactional_id = transactional_id
        self.verdict: str | None = None
        """This broker's summary of the coordinator's answer (``base.transaction_verdicts``); None while it is young."""
        self.ended = False
        self.written = False
        """True once its id is in the partition's file."""

    def file_entry(self) -> KnownTransaction | None:
        """The transaction's entry in the file; None without an id."""
        name = self.transactional_id
        if name is None:
            return None
        return KnownTransaction(self.producer_id, self.epoch, self.start_offset, self.started_ms, name)


class OpenTransactions:
    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, dict[int, OpenTransaction]] = {}
        """Open transactions of each partition by producer id, in the order of their begins."""
        self.begun: deque[OpenTransaction] = deque()
        """Transactions that the node has not taken yet, in the order of their begins."""
        self._entries: dict[TopicPartition, int] = {}
        """Number of entries in a partition's file, if known."""
        self._newest: WeakValueDictionary[int, OpenTransaction] = WeakValueDictionary()
        """Each producer's newest transaction: its id string, up to 32 kB, is shared."""

    def get(self, partition: TopicPartition, producer_id: int) -> OpenTransaction | None:
        open_here = self.partitions.get(partition)
        return None if open_here is None else open_here.get(producer_id)

    def began(self, transaction: OpenTransaction) -> None:
        """The first batch was appended, or found in the log."""
        newest = self._newest.get(transaction.producer_id)
        if newest is not None and newest.transactional_id == transaction.transactional_id:
            transaction.transactional_id = newest.transactional_id  # the same string, once in memory
        self._newest[transaction.producer_id] = transaction
        self.partitions.setdefault(transaction.partition, {})[transaction.producer_id] = transaction
        self.begun.append(transaction)

    def named(self, partition: TopicPartition, producer_id: int, transactional_id: str) -> None:
        """A later batch has the id."""
        transaction = self.get(partition, producer_id)
        if transaction is not None and transaction.transactional_id is None:
            transaction.transactional_id = transactional_id

    def encode_since(self, partition: TopicPartition, offset: int, most_bytes: int) -> bytes:
        """The owners of open transactions that begin at ``offset`` or later, as entries of the partition's file; the
        newest ones within ``most_bytes``."""
        entries: list[bytes] = []
        for transaction in reversed(self.partitions.get(partition, {}).values()):
            if transaction.start_offset < offset:
                break
            entry = transaction.file_entry()
            encoded = b"" if entry is None else transactional_ids.encode((entry,))
            most_bytes -= len(encoded)
            if most_bytes < 0:
                break
            entries.append(encoded)
        return b"".join(reversed(entries))

    def told(self, partition: TopicPartition, entries: bytes) -> None:
        """Add the owners that a replica's leader sent (:meth:`encode_since`); entries that match no open transaction
        exactly are skipped."""
        open_here = self.partitions.get(partition)
        if open_here is None:
            return
        for entry in transactional_ids.decode_entries(entries):
            transaction = open_here.get(entry.producer_id)
            if transaction is not None and (transaction.epoch, transaction.start_offset) == entry[1:3]:
                transaction.transactional_id = transaction.transactional_id or entry.transactional_id
                transaction.started_ms = entry.started_ms

    def ended(self, partition: TopicPartition, producer_id: int) -> None:
        open_here = self.partitions.get(partition)
        if open_here is None:
            return
        transaction = open_here.pop(producer_id, None)
        if transaction is not None:
            transaction.ended = True
        if not open_here:
            del self.partitions[partition]

    def dropped(self, partition: TopicPartition) -> None:
        for transaction in self.partitions.pop(partition, {}).values():
            transaction.ended = True
        self._entries.pop(partition, None)

    def restore(self, log: TransactionalLog) -> None:
        """Load a log's open transactions after recovery or a truncation, with the matching ids of its file. Known ones
        stay, others end."""
        producers = log.producers
        before = self.partitions.pop(log.partition, {})
        for transaction in before.values():
            if producers.ongoing.get(transaction.start_offset) != transaction.producer_id:
                transaction.ended = True
        if not producers.ongoing:
            return
        entries_on_file = {entry[:3]: entry for entry in transactional_ids.read(log.files, log.directory)}
        for start_offset, producer_id in producers.ongoing.items():
            open_here = before.get(producer_id)
            if open_here is not None and not open_here.ended:
                self.partitions.setdefault(log.partition, {})[producer_id] = open_here
                continue
            entry = producers.entries[producer_id]
            known_entry = entries_on_file.get((producer_id, entry.epoch, start_offset))
            started_ms = (
                _first_timestamp(log, start_offset, entry.last_timestamp) if known_entry is None else known_entry[3]
            )
            name = None if known_entry is None else known_entry.transactional_id
            self.began(OpenTransaction(log.partition, producer_id, entry.epoch, start_offset, started_ms, name))

    def write_ids(self, log: TransactionalLog, *, rewrites: bool = False) -> None:
        """Append the missing ids to a log's file, or rewrite a file with many stale entries. Raises OSError; the next
        call tries again."""
        open_here = self.partitions.get(log.partition, {})
        held = self._entries.get(log.partition)
        # The first write of a run replaces the file, whose end may be damaged.
        rewrites = rewrites or held is None or held > MAX_STALE_ENTRIES + 2 * len(open_here)
        lacking = {
            t: entry
            for t in open_here.values()
            if (rewrites or not t.written) and (entry := t.file_entry()) is not None
        }
        if not lacking:
            return
        self._entries.pop(log.partition, None)
        transactional_ids.write(log.files, log.directory, lacking.values(), rewrites=rewrites)
        self._entries[log.partition] = len(lacking) + (0 if rewrites else held or 0)
        for transaction in lacking:
            transaction.written = True


def _first_timestamp(log: TransactionalLog, offset: int, default: int) -> int:
    """The timestamp of the batch at ``offset``, if it still exists."""
    index = log.segments.floor(offset)
    batch = log.segments[index].find(offset) if index >= 0 else None
    if batch is None or batch[1].base_offset != offset or batch[1].base_timestamp < 0:
        return default
    return batch[1].base_timestamp
