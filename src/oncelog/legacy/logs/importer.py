"""A 0.7 log into a topic: partition N to partition N, in order, each message exactly once however often it is killed.

A run takes the import's transactional id, which ends what an earlier run left open and fences it; reads the positions
committed so far; and writes messages and new positions in transactions: both are there, or neither is. So it can be run
again at any time: after a crash, for what the log has got since, or for nothing. With ``follow`` it goes on until it is
told to stop.

What cannot be read is handled by ``OnCorruption``; an unfinished entry at the end of the log counts as one bad place,
unless the run follows the log and waits for the rest. Whatever the choice, the position never passes a tail: what an
old broker writes there later is imported then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from oncelog.base.ids import TopicName, TopicPartition, uuid_text
from oncelog.base.notation.shell_words import argument
from oncelog.base.text import counted
from oncelog.base.units import KIB, MIB
from oncelog.client.blocking.client import Client
from oncelog.client.blocking.link import now_ms
from oncelog.client.blocking.producer import ProducerSettings
from oncelog.client.blocking.transactions import TransactionalProducer
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.legacy.logs.directories import OldLogError
from oncelog.legacy.logs.import_positions import ImportKey, ImportPosition, PositionTopic, to_record
from oncelog.legacy.logs.import_settings import ImportSettings, OnCorruption, Timestamps
from oncelog.legacy.logs.log_reader import BadPlace, LogReader, Messages
from oncelog.legacy.logs.value_batches import RECORD_OVERHEAD, value_batches
from oncelog.records.batch import HEADER_SIZE, NO_TIMESTAMP

BUFFER_BYTES: Final = 32 * MIB


class BatchProducer(TransactionalProducer):
    """``send_batch`` beside ``send``."""

    def send_batch(self, partition: TopicPartition, batch: bytearray) -> None:
        """Take one batch into the transaction; waits while too much is buffered. Raises TransactionFailed."""
        self.transactions.require_open("send records")
        self.machine.add_batch(partition, batch, now_ms())
        self._step(flush=True, waits=False)
        while self.machine.buffered_bytes >= BUFFER_BYTES:
            self._step(flush=True, waits=True)
        self._raise_failure()


COMPRESSION_OVERHEAD: Final = 1 * KIB
"""More than a codec adds to a batch of a megabyte that it cannot compress."""


@dataclass(slots=True)
class Totals:
    """Totals of what a run has committed: messages, bytes of their payloads, and bad places it met."""

    messages: int = 0
    bytes: int = 0
    bad: int = 0


class DamagedLog(OldLogError):
    """A damaged place ended an import; what is before it is imported."""

    def __init__(self, place: BadPlace) -> None:
        self.place = place
        super().__init__(
            f"{place}. What is before it is imported; --on-corruption skip goes on behind it, stop ends the partition "
            "there"
        )


Watch = Callable[["Event"], None]


@dataclass(frozen=True, slots=True)
class Event:
    """Progress: a transaction was committed, or (``bad``) a damaged place was met in a partition."""

    totals: Totals
    log_bytes_done: int
    log_bytes_total: int
    partition: int = -1
    bad: BadPlace | None = None


@dataclass(slots=True, eq=False)
class _Partition:
    number: int
    reader: LogReader
    committed: int
    stopped: bool = False


@dataclass(slots=True)
class _Pending:
    """Facts of the open transaction."""

    totals: Totals = field(default_factory=Totals)
    begun_s: float = 0.0
    size_bytes: int = 0


class Importer:
    """One run of an import; a context manager. ``partitions`` are the log's directories by number."""

    def __init__(
        self,
        client: Client,
        key: ImportKey,
        partitions: Mapping[int, Path],
        settings: ImportSettings,
        on_event: Watch = lambda event: None,
    ) -> None:
        self.totals = Totals()
        self._client = client
        self._key = key
        self._settings = settings
        self._on_event = on_event
        self._directories = dict(partitions)
        self._partitions: dict[int, _Partition] = {}
        self._pending = _Pending()
        self._tail: BadPlace | None = None
        self._stack = ExitStack()
        self._positions = PositionTopic(client, key)
        producer = ProducerSettings(codec=settings.codec, batch_bytes=64 * KIB)
        self._producer = BatchProducer(client, TransactionSettings(key.transactional_id), producer)

    def __enter__(self) -> Importer:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._producer.__exit__(None, None, None)
        finally:
            self._stack.close()

    def prepare(self) -> None:
        """Fence earlier runs, and find where each partition goes on. Raises OldLogError if the log is another than the
        one that was imported under this name, BrokerRefused and what the client does."""
        self._positions.ensure()
        self._producer.initialize()
        topic = self._client.topic(self._key.topic)
        self._topic_id = uuid_text(topic.topic_id) if any(topic.topic_id) else ""
        self._known = self._positions.read()
        for number, directory in sorted(self._directories.items()):
            self._add(number, directory)

    def run(self, directories: Callable[[], Mapping[int, Path]] | None = None) -> Totals:
        """Import what there is; with ``follow`` for ever, with the partitions that ``directories`` has by then. Raises
        DamagedLog, and what ``prepare`` does."""
        while True:
            moved = False
            for partition in self._partitions.values():
                if not partition.stopped:
                    moved |= self._advance(partition)
            if not moved:
                self._commit()
                if self._tail is not None:
                    raise DamagedLog(self._tail)
                if not self._settings.follow or all(one.stopped for one in self._partitions.values()):
                    return self.totals
                self._client.system.sleep(self._settings.poll_ms)
                now = {} if directories is None else directories()
                for number in sorted(now.keys() - self._partitions.keys()):
                    self._add(number, now[number])

    def _add(self, number: int, directory: Path) -> None:
        count = len(self._client.topic(self._key.topic).partitions)
        if number >= count:
            raise OldLogError(
                f"{directory} is partition {number}, and topic {self._key.topic} has {counted(count, 'partition')}: "
                f"add some with `oncelog topic alter --partitions {number + 1} {argument(self._key.topic)}`"
            )
        known = self._known.get(number)
        if known is not None and known.topic_id != self._topic_id and known.topic_id and self._topic_id:
            known = None
        reader = LogReader(directory, None if known is None else known.offset, self._settings.limits)
        self._stack.callback(reader.close)
        if known is not None and not reader.matches(known.mark):
            raise OldLogError(
                f"{directory} is not the log that was imported into {self._key.topic} as {self._key.name!r}: its bytes "
                f"before offset {known.offset} are others. If it is another broker's, give it a name: --as NAME"
            )
        self._partitions[number] = _Partition(number, reader, reader.position)

    def _advance(self, partition: _Partition) -> bool:
        """Read on in a partition; False if there is nothing (more)."""
        found = partition.reader.read()
        match found:
            case None:
                return False
            case Messages():
                self._send(partition, found)
            case BadPlace():
                if found.is_tail and self._settings.follow:
                    partition.reader.pass_over(found)
                    return False
                self._met(partition, found)
        pending = self._pending
        due = time.monotonic() - pending.begun_s >= self._settings.transaction_ms / 1000
        if pending.begun_s and (due or pending.size_bytes >= self._settings.transaction_bytes):
            self._commit()
        return not partition.stopped

    def _send(self, partition: _Partition, found: Messages) -> None:
        self._begin()
        settings = self._settings
        timestamp = found.modified_ms if settings.timestamps is Timestamps.FILE else NO_TIMESTAMP
        most = settings.batch_bytes - HEADER_SIZE - COMPRESSION_OVERHEAD
        longest = max(map(len, found.payloads), default=0)
        if longest + RECORD_OVERHEAD > most:
            raise OldLogError(
                f"{partition.reader.directory}: a message before offset {found.position} has {longest} bytes, and "
                f"topic {self._key.topic} takes batches of {settings.batch_bytes}: raise its limit with `oncelog topic "
                f"alter -c max.message.bytes={longest + 2 * COMPRESSION_OVERHEAD} {argument(self._key.topic)}`"
            )
        to = TopicPartition(TopicName(self._key.topic), partition.number)
        for batch in value_batches(found.payloads, timestamp, most, settings.codec):
            self._pending.size_bytes += len(batch)
            self._producer.send_batch(to, batch)
        self._pending.totals.messages += len(found.payloads)
        self._pending.totals.bytes += sum(map(len, found.payloads))

    def _met(self, partition: _Partition, place: BadPlace) -> None:
        """Handle a damaged place. Raises DamagedLog, after what is before it was committed."""
        self._on_event(self._event(partition.number, place))
        policy = self._settings.on_corruption
        if place.is_tail or policy is OnCorruption.STOP:
            self.totals.bad += 1
            partition.stopped = True
            if policy is OnCorruption.FAIL:  # the old broker may still be writing: the other partitions go first
                self._tail = self._tail or place
        elif policy is OnCorruption.FAIL:
            self._commit()
            self.totals.bad += 1
            raise DamagedLog(place)
        else:
            partition.reader.pass_over(place)
            self._begin()
            self._pending.totals.bad += 1

    def _begin(self) -> None:
        if not self._pending.begun_s:
            self._producer.begin()
            self._pending.begun_s = time.monotonic()

    def _commit(self) -> None:
        """Commit messages and positions, if there are new ones."""
        if not self._pending.begun_s:
            return
        for one in self._partitions.values():
            if one.reader.position != one.committed:
                position = ImportPosition(one.reader.position, one.reader.mark, self._topic_id)
                record = to_record(self._key, one.number, position)
                to = self._positions.partition
                self._producer.send(to.topic, record.value, key=record.key, partition=to.partition)
        self._producer.commit()
        for one in self._partitions.values():
            one.committed = one.reader.position
        done = self._pending.totals
        self.totals.messages += done.messages
        self.totals.bytes += done.bytes
        self.totals.bad += done.bad
        self._pending = _Pending()
        self._on_event(self._event())

    def _event(self, partition: int = -1, bad: BadPlace | None = None) -> Event:
        done = total = 0
        for one in self._partitions.values():
            begin, end = one.reader.extent()
            total += end - begin
            done += max(0, one.reader.position - begin)
        return Event(self.totals, done, total, partition, bad)
