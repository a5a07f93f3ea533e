"""The transactions that are open in the logs of one directory, each with the transactional id it came with.

The producer state knows them by producer id and offset, for the last stable offset; here is what an operator and the
search for hanging transactions need beside that: whose they are and since when. Logs tell what begins and ends; the
node takes from :attr:`OpenTransactions.begun` what is new, and decides when ids are worth writing down.

Invariant: ``partitions`` holds exactly the open transactions of the producer states of the directory's logs, and no
partition without one: whoever looks for open transactions looks at these and not at all logs.
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
"""Entries of ended transactions that a file may hold before it is written anew."""


class TransactionalLog(Protocol):
    """A log, as far as its open transactions are found in it."""

    files: Files
    directory: str
    partition: TopicPartition
    producers: ProducerState
    segments: Segments


class OpenTransaction:
    """One transaction on one partition. ``transactional_id`` is None where it is not known (older data)."""

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
        """When it began; the producer state has the current one."""
        self.start_offset = start_offset
        self.started_ms = started_ms
        """When its first batch was appended here; where that is not known, that batch's own timestamp."""
        self.transactional_id = transactional_id
        self.verdict: str | None = None
        """The broker's word for what its coordinator says (``base.transaction_verdicts``); None while it is young."""
        self.ended = False
        self.written = False
        """True once its id is in the partition's file."""

    def known(self) -> KnownTransaction | None:
        """The transaction's entry in the file, None without an id."""
        name = self.transactional_id
        if name is None:
            return None
        return KnownTransaction(self.producer_id, self.epoch, self.start_offset, self.started_ms, name)


class OpenTransactions:
    """The open transactions of one data directory; the invariant is the module's."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, dict[int, OpenTransaction]] = {}
        """Open transactions of each partition by producer id, in the order in which they began."""
        self.begun: deque[OpenTransaction] = deque()
        """Transactions that the node has not taken from here yet, in the order in which they began."""
        self._entries: dict[TopicPartition, int] = {}
        """Number of entries in the file of a partition, where that is known."""
        self._newest: WeakValueDictionary[int, OpenTransaction] = WeakValueDictionary()
        """The transaction that each producer has begun last: its id is shared, for ids may have 32 kB."""

    def get(self, partition: TopicPartition, producer_id: int) -> OpenTransaction | None:
        """The transaction that the producer has open on the partition, or None."""
        open_here = self.partitions.get(partition)
        return None if open_here is None else open_here.get(producer_id)

    # From the logs

    def began(self, transaction: OpenTransaction) -> None:
        """Take in a transaction whose first batch was appended, or was found in the log."""
        newest = self._newest.get(transaction.producer_id)
        if newest is not None and newest.transactional_id == transaction.transactional_id:
            transaction.transactional_id = newest.transactional_id  # the same string, once in memory
        self._newest[transaction.producer_id] = transaction
        self.partitions.setdefault(transaction.partition, {})[transaction.producer_id] = transaction
        self.begun.append(transaction)

    def named(self, partition: TopicPartition, producer_id: int, transactional_id: str) -> None:
        """Take in the transactional id that a later batch of an open transaction came with."""
        transaction = self.get(partition, producer_id)
        if transaction is not None and transaction.transactional_id is None:
            transaction.transactional_id = transactional_id

    def encode_since(self, partition: TopicPartition, offset: int, most_bytes: int) -> bytes:
        """The owners of open transactions that begin at ``offset`` or later: entries as in the partition's file, the
        newest ones where ``most_bytes`` are not enough."""
        found: list[bytes] = []
        for transaction in reversed(self.partitions.get(partition, {}).values()):
            if transaction.start_offset < offset:
                break
            entry = transaction.known()
            encoded = b"" if entry is None else transactional_ids.encode((entry,))
            most_bytes -= len(encoded)
            if most_bytes < 0:
                break
            found.append(encoded)
        return b"".join(reversed(found))

    def told(self, partition: TopicPartition, entries: bytes) -> None:
        """Take in what the leader of a replica says of open transactions (:meth:`encode_since`); entries that are not
        exactly of one that is open here are passed over."""
        open_here = self.partitions.get(partition)
        if open_here is None:
            return
        for entry in transactional_ids.decode_entries(entries):
            transaction = open_here.get(entry.producer_id)
            if transaction is not None and (transaction.epoch, transaction.start_offset) == entry[1:3]:
                transaction.transactional_id = transaction.transactional_id or entry.transactional_id
                transaction.started_ms = entry.started_ms

    def ended(self, partition: TopicPartition, producer_id: int) -> None:
        """End a transaction: its marker was appended."""
        open_here = self.partitions.get(partition)
        if open_here is None:
            return
        transaction = open_here.pop(producer_id, None)
        if transaction is not None:
            transaction.ended = True
        if not open_here:
            del self.partitions[partition]

    def dropped(self, partition: TopicPartition) -> None:
        """End all transactions of a partition that is gone."""
        for transaction in self.partitions.pop(partition, {}).values():
            transaction.ended = True
        self._entries.pop(partition, None)

    # Files

    def restore(self, log: TransactionalLog) -> None:
        """Take in what recovery or a truncation has left open in a log; ids from its file, where they are exactly of
        that. Those that are known already stay as they are, others that were open end."""
        producers = log.producers
        before = self.partitions.pop(log.partition, {})
        for transaction in before.values():
            if producers.ongoing.get(transaction.start_offset) != transaction.producer_id:
                transaction.ended = True
        if not producers.ongoing:
            return
        known = {entry[:3]: entry for entry in transactional_ids.read(log.files, log.directory)}
        for start_offset, producer_id in producers.ongoing.items():
            open_here = before.get(producer_id)
            if open_here is not None and not open_here.ended:
                self.partitions.setdefault(log.partition, {})[producer_id] = open_here
                continue
            entry = producers.entries[producer_id]
            found = known.get((producer_id, entry.epoch, start_offset))
            started_ms = _first_timestamp(log, start_offset, entry.last_timestamp) if found is None else found[3]
            name = None if found is None else found.transactional_id
            self.began(OpenTransaction(log.partition, producer_id, entry.epoch, start_offset, started_ms, name))

    def write_ids(self, log: TransactionalLog, *, anew: bool = False) -> None:
        """Bring the file of a log up to date: append what it lacks, or write it anew when it holds much that is over
        (and the first time, as its end may be damaged). Raises OSError; then it is tried again with the next one."""
        open_here = self.partitions.get(log.partition, {})
        held = self._entries.get(log.partition)
        anew = anew or held is None or held > MAX_STALE_ENTRIES + 2 * len(open_here)
        lacking = {t: entry for t in open_here.values() if (anew or not t.written) and (entry := t.known()) is not None}
        if not lacking:
            return
        self._entries.pop(log.partition, None)
        transactional_ids.write(log.files, log.directory, lacking.values(), anew=anew)
        self._entries[log.partition] = len(lacking) + (0 if anew else held or 0)
        for transaction in lacking:
            transaction.written = True


def _first_timestamp(log: TransactionalLog, offset: int, otherwise: int) -> int:
    """The timestamp of the batch at ``offset``, if it is still there."""
    index = log.segments.floor(offset)
    found = log.segments[index].find(offset) if index >= 0 else None
    if found is None or found[1].base_offset != offset or found[1].base_timestamp < 0:
        return otherwise
    return found[1].base_timestamp
