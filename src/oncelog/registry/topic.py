"""The topic `_schemas`: read to its end and on, and written by the one instance that holds the pen.

1. The pen is the newest epoch of a transactional id. An instance that wants to write takes it (InitProducerId) and
   appends a `NOOP` record of that epoch: from then on the partition refuses every older epoch. Records before that one
   decide, so the instance reads up to it.
2. Records are not part of transactions: none is ever aborted, so readers that do not know transactions, as Confluent's
   registry, see exactly what ours see. A batch is appended as a whole or not at all.
3. A pen is taken again after ``PEN_S``, long before brokers forget a producer or a transactional id.
4. An append is done when its records have been read back: readers of this instance see what it has answered.

Other registries do not know the pen. Confluent's may write before or after, not at the same time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from oncelog.admin.configs import ResourceType, values_of
from oncelog.admin.topics import NewTopic, ensure_topic
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, TopicName, TopicPartition
from oncelog.base.units import MIB
from oncelog.client.aio import AsyncClient, AsyncConsumer, AsyncTransactionalProducer
from oncelog.client.errors import ClientError, ConfigError
from oncelog.client.machine.consumed_records import ConsumedRecord, read_fetched
from oncelog.client.machine.positions import FetchSettings
from oncelog.client.machine.requests import produce_request, produce_version_limit
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.client.programs.steps import raise_for_error
from oncelog.listening.limited_lines import LimitedLines
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.registry import errors
from oncelog.registry.store import Store
from oncelog.registry.topic_records import (
    NOOP,
    Key,
    TopicRecord,
    UnreadableRecord,
    Value,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

PEN_S: Final = 300.0
MAX_RECORD_BYTES: Final = 1_000_000
"""Brokers take batches of 1 MiB unless told otherwise."""
_RECORD_OVERHEAD_BYTES: Final = 30
REPLICATION_FACTOR: Final = 3
TRANSACTIONAL_ID: Final = "oncelog-registry"
_LATEST: Final = -1
_EARLIEST: Final = -2
_PAUSE_S: Final = 1.0
_FENCED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)
_LOG: Final = logging.getLogger("oncelog.registry")


class PenLost(Exception):
    """Another instance writes now. The append has to be decided again, by what the topic has by then."""


@dataclass(slots=True)
class _Pen:
    producer_id: int
    producer_epoch: int
    taken_s: float
    sequence: int = 0


class SchemasTopic:
    def __init__(self, client: AsyncClient, store: Store, topic: str, *, patience_s: float = 30.0) -> None:
        self.store = store
        self.position = 0
        """The offset of the next record to read."""
        self._client = client
        self._partition = TopicPartition(TopicName(topic), 0)
        self._transactional_id = f"{TRANSACTIONAL_ID}:{topic}"
        self._patience_s = patience_s
        self._consumer = AsyncConsumer(client, FetchSettings(read_committed=True, partition_max_bytes=4 * MIB))
        self._advanced = asyncio.Condition()
        self._raw_keys: dict[Key, bytes] = {}
        # Keys that another registry writes with other bytes: compaction compares bytes.
        self._topic_id: bytes | None = None
        """The id of the topic that was read."""
        self._pen: _Pen | None = None
        self._reading: asyncio.Task[None] | None = None
        self._lines = LimitedLines(_LOG, logging.WARNING)

    async def start(self, *, create: bool = True) -> None:
        """Create the topic if it is missing and read it to its end. Raises ClientError."""
        await _prepare(self._client, self._partition.topic, create=create)
        await self._read_from_start()
        self._reading = asyncio.create_task(self._read())
        await self.catch_up()

    @property
    def is_reading(self) -> bool:
        """False before the start, and after a failure that ended the reading."""
        return self._reading is not None and not self._reading.done()

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        await self._consumer.close()

    async def catch_up(self) -> None:
        """Wait until everything that is in the topic now has been applied. Raises ClientError or RegistryError."""
        before = self.position
        ends = await self._consumer.list_offsets({self._partition: _LATEST}, read_committed=True)
        if ends[self._partition] < before:
            # Deleted and created again, or cut; the reader sees it, too. The store is outdated until then.
            raise errors.RegistryError(
                errors.Code.STORE_FAILED,
                f"{self._partition.topic} ends before offset {before}, which was read already; it is read again",
            )
        await self._reach(ends[self._partition])

    async def hold_pen(self) -> None:
        """Take the pen unless it is held, and catch up. Raises PenLost, ClientError or RegistryError."""
        now_s = asyncio.get_running_loop().time()
        if self._pen is not None and now_s - self._pen.taken_s < PEN_S:
            await self.catch_up()
            return
        self._pen = None
        producer = AsyncTransactionalProducer(self._client, TransactionSettings(self._transactional_id))
        try:
            await producer.initialize()
        finally:
            await producer.close()
        self._pen = _Pen(producer.machine.producer_id, producer.machine.producer_epoch, now_s)
        await self.append([TopicRecord(NOOP, None)])

    async def append(self, records: Sequence[TopicRecord]) -> None:
        """Append records in one batch, and wait until they are applied. Raises PenLost, ClientError or RegistryError.

        After an error the outcome may be open; the pen is dropped, and its next holder sees it.
        """
        pen, self._pen = self._pen, None
        if pen is None:
            raise PenLost
        expected = self.position
        offset = await self._client.retrying(lambda: self._produce(pen, records))
        if offset != expected and records[0].key != NOOP:
            self._lines.log(
                f"the topic {self._partition.topic} has records of another writer; only registries of oncelog may "
                "write to it at the same time"
            )
        await self._reach(offset + len(records))
        pen.sequence += len(records)
        self._pen = pen

    async def _produce(self, pen: _Pen, records: Sequence[TopicRecord]) -> int:
        """The offset of the first record. The same batch again is recognised by its sequence."""
        # Also before a repetition: the process may have been frozen in between.
        if asyncio.get_running_loop().time() - pen.taken_s >= PEN_S:
            raise PenLost
        now_ms = self._client.now_ms()
        batch = build_batch(
            (
                Record(index, now_ms, self._key(key), _value(key, value), ())
                for index, (key, value) in enumerate(records)
            ),
            producer_id=pen.producer_id,
            producer_epoch=pen.producer_epoch,
            base_sequence=pen.sequence,
        )
        client, partition = self._client, self._partition
        link = await client.link(await client.leader(partition))
        message = produce_request(client.view, {partition: batch}, -1, client.config.request_timeout_ms)
        version = link.versions.choose(message, produce_version_limit(client.view, [partition]))
        response = await link.call(message, version, 2 * client.config.request_timeout_ms)
        answer = response.responses[0].partition_responses[0]
        if answer.error_code in _FENCED:
            raise PenLost
        if answer.error_code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
            raise errors.too_large("Register operation failed because schema is too large")
        raise_for_error(answer, f"write to {partition}")
        return int(answer.base_offset)

    def _key(self, key: Key) -> bytes:
        return self._raw_keys.get(key) or encode_key(key)

    async def _reach(self, offset: int) -> None:
        try:
            async with asyncio.timeout(self._patience_s), self._advanced:
                await self._advanced.wait_for(lambda: self.position >= offset)
        except TimeoutError:
            raise errors.RegistryError(
                errors.Code.TIMED_OUT,
                f"{self._partition.topic} could not be read up to offset {offset} in {self._patience_s:g} s",
            ) from None

    async def _read(self) -> None:
        while True:
            try:
                await self._read_some()
            except ClientError as error:
                self._lines.log(f"{self._partition.topic} cannot be read at the moment: {error}")
                await asyncio.sleep(_PAUSE_S)
            except Exception:
                _LOG.exception("the registry reads %s no further; restart it", self._partition.topic)
                raise

    async def _read_some(self) -> None:
        for fetched in await self._consumer.poll(1000):
            is_another = False
            if fetched.topic_id != NO_TOPIC_ID:  # Errors have none, nor do old brokers.
                is_another = self._topic_id not in (None, fetched.topic_id)
                self._topic_id = fetched.topic_id
            if fetched.error_code or is_another:
                # Deleted and created again, or cut by retention.
                reason = f"error {fetched.error_code}" if fetched.error_code else "it was created again"
                self._lines.log(f"{self._partition.topic} is read again from its start ({reason})")
                await self._read_from_start()
                return
            for record in read_fetched(fetched, read_committed=True):
                self._apply(record)
            async with self._advanced:
                self.position = fetched.next_offset
                self._advanced.notify_all()

    async def _read_from_start(self) -> None:
        starts = await self._consumer.list_offsets({self._partition: _EARLIEST})
        self.store.clear()
        self._raw_keys.clear()
        self.position = starts[self._partition]
        await self._consumer.assign(starts)

    def _apply(self, record: ConsumedRecord) -> None:
        try:
            key = decode_key(record.key)
            value = None if record.value is None else decode_value(key, record.value, record.timestamp)
        except UnreadableRecord as error:
            self._lines.log(f"{self._partition.topic}, offset {record.offset}, is ignored: {error}")
            return
        if record.key != encode_key(key):
            self._raw_keys[key] = record.key or b""
        if not self.store.apply(TopicRecord(key, value)):
            self._lines.log(
                f"{self._partition.topic}, offset {record.offset}, is ignored: its id belongs to another schema"
            )


def _value(key: Key, value: Value | None) -> bytes | None:
    return None if value is None else encode_value(key, value)


def size_of(record: TopicRecord) -> int:
    """The bytes of a record in a batch. Raises RegistryError for one that brokers would refuse."""
    size = len(encode_key(record.key)) + len(_value(*record) or b"") + _RECORD_OVERHEAD_BYTES
    if size > MAX_RECORD_BYTES:
        raise errors.too_large("Register operation failed because schema is too large")
    return size


def in_batches(records: Sequence[TopicRecord]) -> Iterator[Sequence[TopicRecord]]:
    """Records in batches that brokers take. Raises RegistryError for a record that is too large alone."""
    batch: list[TopicRecord] = []
    size = 0
    for record in records:
        added = size_of(record)
        if batch and size + added > MAX_RECORD_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += added
    if batch:
        yield batch


async def _prepare(client: AsyncClient, topic: TopicName, *, create: bool) -> None:
    await client.refresh_brokers()
    if create:
        replicas = min(REPLICATION_FACTOR, max(1, len(client.view.brokers)))
        new = NewTopic(topic, 1, replicas, {"cleanup.policy": "compact"})
        await client.run(ensure_topic(client.cluster, new))
    info = await client.topic(topic)
    if len(info.partitions) != 1:
        raise ConfigError(
            f"the topic {topic} has {len(info.partitions)} partitions; a registry needs one with exactly 1"
        )
    policies = await client.run(values_of(client.cluster, ResourceType.TOPIC, [topic], "cleanup.policy"))
    policy = policies.get(topic)
    if policy is not None and policy != "compact":
        raise ConfigError(
            f"the topic {topic} has cleanup.policy={policy}, so schemas would be deleted; set it to compact"
        )
