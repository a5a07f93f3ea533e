"""Imports a Kafka 0.7 log into a topic: partition N to partition N, in order, each message exactly once despite
crashes.

A run uses the import's transactional id, which aborts and fences an earlier run, reads the committed positions, and
writes messages and new positions in the same transactions. So it can be repeated at any time. With ``follow`` it runs
until stopped.

``OnCorruption`` handles damage. An incomplete entry at the end of the log counts as damage, unless the run follows the
log. In every case the position stays before it, so that data the old broker writes there later is imported.
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
    """A transactional producer that also sends prepared batches."""

    def send_batch(self, partition: TopicPartition, batch: bytearray) -> None:
        """Add a batch to the transaction; blocks while too much is buffered. Raises TransactionFailed."""
        self.transactions.require_open("send records")
        self.machine.add_batch(partition, batch, now_ms())
        self._step(flush=True, waits=False)
        while self.machine.buffered_bytes >= BUFFER_BYTES:
            self._step(flush=True, waits=True)
        self._raise_failure()


COMPRESSION_OVERHEAD: Final = 1 * KIB  # Upper bound of what a codec adds to an incompressible batch of 1 MB.


@dataclass(slots=True)
class Totals:
    """Totals that a run has committed: messages, their payload bytes, and damaged places."""

    messages: int = 0
    bytes: int = 0
    bad: int = 0


class DamagedLog(OldLogError):
    """Damage stopped an import; everything before it is imported."""

    def __init__(self, place: BadPlace) -> None:
        self.place = place
        super().__init__(
            f"{place}. Everything before it is imported. Use --on-corruption skip to continue after it, or stop to end "
            "the partition there"
        )


Watch = Callable[["Event"], None]


@dataclass(frozen=True, slots=True)
class Event:
    """Progress: a transaction was committed, or (``bad``) damage was found in a partition."""

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
        """Fence earlier runs, and find each partition's position. Raises OldLogError if this is not the log imported
        under this name, BrokerRefused, and the client's errors.
        """
        # Positions are read after the producer is initialised, which fences earlier runs.
        self._positions.ensure()
        self._producer.initialize()
        topic = self._client.topic(self._key.topic)
        self._topic_id = uuid_text(topic.topic_id) if any(topic.topic_id) else ""
        self._imported = self._positions.read()
        for number, directory in sorted(self._directories.items()):
            self._add(number, directory)

    def run(self, directories: Callable[[], Mapping[int, Path]] | None = None) -> Totals:
        """Import all messages; with ``follow`` run until stopped, adding the partitions that ``directories`` returns.

        Raises DamagedLog, and the errors of ``prepare``.
        """
        while True:
            moved = False
            for partition in self._partitions.values():
                if not partition.stopped:
                    moved |= self._advance(partition)
            if not moved:
                self._commit()
                if self._tail is not None:
                    raise DamagedLog(self._tail)
                if not self._settings.follow or all(partition.stopped for partition in self._partitions.values()):
                    return self.totals
                self._client.system.sleep(self._settings.poll_ms)
                now = {} if directories is None else directories()
                for number in sorted(now.keys() - self._partitions.keys()):
                    self._add(number, now[number])

    def _add(self, number: int, directory: Path) -> None:
        count = len(self._client.topic(self._key.topic).partitions)
        if number >= count:
            raise OldLogError(
                f"{directory} is partition {number}, but topic {self._key.topic} has {counted(count, 'partition')}; "
                f"add partitions with `oncelog topic alter --partitions {number + 1} {argument(self._key.topic)}`"
            )
        position = self._imported.get(number)
        if position is not None and position.topic_id != self._topic_id and position.topic_id and self._topic_id:
            position = None
        reader = LogReader(directory, None if position is None else position.offset, self._settings.limits)
        self._stack.callback(reader.close)
        if position is not None and not reader.matches(position.mark):
            raise OldLogError(
                f"{directory} is not the log that was imported into {self._key.topic} as {self._key.name!r}: its bytes "
                f"before offset {position.offset} differ. If it is another broker's log, name it with --as NAME"
            )
        self._partitions[number] = _Partition(number, reader, reader.position)

    def _advance(self, partition: _Partition) -> bool:
        """Read on in a partition; False at its end."""
        result = partition.reader.read()
        match result:
            case None:
                return False
            case Messages():
                self._send(partition, result)
            case BadPlace():
                if result.is_tail and self._settings.follow:
                    partition.reader.pass_over(result)
                    return False
                self._handle_damage(partition, result)
        pending = self._pending
        due = time.monotonic() - pending.begun_s >= self._settings.transaction_ms / 1000
        if pending.begun_s and (due or pending.size_bytes >= self._settings.transaction_bytes):
            self._commit()
        return not partition.stopped

    def _send(self, partition: _Partition, messages: Messages) -> None:
        self._begin()
        settings = self._settings
        timestamp = messages.modified_ms if settings.timestamps is Timestamps.FILE else NO_TIMESTAMP
        max_bytes = settings.batch_bytes - HEADER_SIZE - COMPRESSION_OVERHEAD
        longest = max(map(len, messages.payloads), default=0)
        if longest + RECORD_OVERHEAD > max_bytes:
            raise OldLogError(
                f"{partition.reader.directory}: a message before offset {messages.position} has {longest} bytes, but "
                f"topic {self._key.topic} accepts batches of {settings.batch_bytes}; raise the limit with `oncelog "
                f"topic alter -c max.message.bytes={longest + 2 * COMPRESSION_OVERHEAD} {argument(self._key.topic)}`"
            )
        to = TopicPartition(TopicName(self._key.topic), partition.number)
        for batch in value_batches(messages.payloads, timestamp, max_bytes, settings.codec):
            self._pending.size_bytes += len(batch)
            self._producer.send_batch(to, batch)
        self._pending.totals.messages += len(messages.payloads)
        self._pending.totals.bytes += sum(map(len, messages.payloads))

    def _handle_damage(self, partition: _Partition, place: BadPlace) -> None:
        """Raises DamagedLog, after committing everything before it."""
        self._on_event(self._event(partition.number, place))
        policy = self._settings.on_corruption
        if place.is_tail or policy is OnCorruption.STOP:
            self.totals.bad += 1
            partition.stopped = True
            if policy is OnCorruption.FAIL:  # The old broker may still be writing, so finish other partitions first.
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
        if not self._pending.begun_s:
            return
        for partition in self._partitions.values():
            if partition.reader.position != partition.committed:
                position = ImportPosition(partition.reader.position, partition.reader.mark, self._topic_id)
                record = to_record(self._key, partition.number, position)
                to = self._positions.partition
                self._producer.send(to.topic, record.value, key=record.key, partition=to.partition)
        self._producer.commit()
        for partition in self._partitions.values():
            partition.committed = partition.reader.position
        done = self._pending.totals
        self.totals.messages += done.messages
        self.totals.bytes += done.bytes
        self.totals.bad += done.bad
        self._pending = _Pending()
        self._on_event(self._event())

    def _event(self, partition: int = -1, bad: BadPlace | None = None) -> Event:
        done = total = 0
        for imported in self._partitions.values():
            begin, end = imported.reader.extent()
            total += end - begin
            done += max(0, imported.reader.position - begin)
        return Event(self.totals, done, total, partition, bad)
