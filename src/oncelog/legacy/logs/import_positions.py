"""How far imports came: records of a compacted topic, written in the transactions that write what was imported.

Not a group's offsets: brokers forget those of a group without members (``offsets.retention.minutes``, a week), and an
import that is run again after that would write everything twice. The key names import, topic and partition; the value
has the position in the old log, a mark of the bytes before it, and the id of the topic: in a topic that was deleted and
made anew, an import begins anew. Records of a version, or of a kind, that is not known are left alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, NamedTuple

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import INT32_MAX, INT64_MAX, MIB
from oncelog.client.blocking.client import EARLIEST, LATEST, Client
from oncelog.client.blocking.link import now_ms
from oncelog.client.blocking.transaction_admin import ensure_topic
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.partitioner import partition_of_key
from oncelog.client.machine.positions import FetchSettings
from oncelog.legacy.logs.directories import OldLogError
from oncelog.legacy.logs.log_reader import Mark

IMPORTS: Final = TopicName("__oncelog_imports")
PARTITIONS: Final = 8
READ_PATIENCE_MS: Final = 90_000
"""Longer than a transaction of another import takes to be timed out."""
VERSION: Final = 1
_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(8 * MIB),
    "min.cleanable.dirty.ratio": "0.1",
    "min.compaction.lag.ms": "0",
}
_AS_RELIABLE_AS: Final = TopicName("__transaction_state")


class ImportKey(NamedTuple):
    """An import of one log into one topic."""

    name: str
    topic: str

    @property
    def transactional_id(self) -> str:
        """The transactional id of the import's producer: the next run fences the one before."""
        return f"oncelog-import/{self.topic}/{self.name}"


class ImportPosition(NamedTuple):
    """The next byte of the old log to import, the mark of those before, and the topic's id (or "")."""

    offset: int
    mark: Mark
    topic_id: str


class PositionRecord(NamedTuple):
    """A record of the topic."""

    key: bytes
    value: bytes


def to_record(key: ImportKey, partition: int, position: ImportPosition) -> PositionRecord:
    """The record that keeps a position."""
    value = {"version": VERSION, "offset": position.offset, "topic_id": position.topic_id, "mark": position.mark}
    return PositionRecord(_json(["import", key.name, key.topic, partition]), _json(value))


def from_records(key: ImportKey, records: Iterable[tuple[bytes | None, bytes | None]]) -> dict[int, ImportPosition]:
    """Partition → position by an import's records, oldest first. Raises OldLogError for a version that is not known."""
    found: dict[int, ImportPosition] = {}
    for name, value in records:
        partition = _partition(key, name)
        if partition is None:
            continue
        if value is None:
            found.pop(partition, None)
            continue
        position = _position(value)
        if position is None:
            raise OldLogError(
                f"import {key.name!r} into {key.topic} has a position that cannot be read (in {IMPORTS}): was it "
                "written by a later version of oncelog?"
            )
        found[partition] = position
    return found


def _partition(key: ImportKey, name: bytes | None) -> int | None:
    match _parsed(name):
        case ["import", key.name, key.topic, int(partition)] if 0 <= partition <= INT32_MAX:
            return partition
    return None


def _position(value: bytes) -> ImportPosition | None:
    match _parsed(value):
        case {"version": 1, "offset": int(offset), "topic_id": str(topic_id), "mark": [int(size), int(crc)]} if (
            0 <= offset <= INT64_MAX and 0 <= size <= MIB
        ):
            return ImportPosition(offset, Mark(size, crc), topic_id)
    return None


def _parsed(data: bytes | None) -> object:
    try:
        return json.loads(data or b"null")
    except ValueError:
        return None


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class PositionTopic:
    """The topic of positions, as one import uses it."""

    def __init__(self, client: Client, key: ImportKey) -> None:
        self._client = client
        self._key = key
        self.partition = TopicPartition(IMPORTS, partition_of_key(key.transactional_id.encode(), PARTITIONS))
        """The partition that holds the import's records."""

    def ensure(self) -> None:
        """Create the topic if it is not there. Raises BrokerRefused; OldLogError if it has too few partitions."""
        known = self._client.metadata([IMPORTS]).get(IMPORTS)
        if known is None or not known.exists:
            model = self._client.metadata([_AS_RELIABLE_AS]).get(_AS_RELIABLE_AS)
            replicas = len(model.partitions[0].replicas) if model is not None and model.exists else -1
            ensure_topic(self._client, IMPORTS, PARTITIONS, _CONFIGS, replication_factor=replicas or -1)
            known = self._client.topic(IMPORTS)
        if len(known.partitions) < PARTITIONS:
            raise OldLogError(
                f"the topic {IMPORTS} has {len(known.partitions)} partitions, and positions of imports need "
                f"{PARTITIONS}: let it be created by the import"
            )

    def read(self) -> dict[int, ImportPosition]:
        """The positions committed so far. To be read after the import's producer is initialised: then no earlier run
        can commit any more. Raises OldLogError, BrokerRefused."""
        begin = self._client.list_offsets({self.partition: EARLIEST})[self.partition].offset
        until = self._client.list_offsets({self.partition: LATEST})[self.partition].offset
        if begin >= until:
            return {}
        settings = FetchSettings(max_wait_ms=50, read_committed=True)
        deadline = now_ms() + READ_PATIENCE_MS
        latest: dict[bytes | None, bytes | None] = {}
        for fetched in self._client.fetch({self.partition: begin}, until={self.partition: until}, settings=settings):
            if fetched.error_code:
                raise BrokerRefused(fetched.error_code, f"positions of imports in {self.partition}")
            for record in read_fetched(fetched, read_committed=True):
                if _partition(self._key, record.key) is not None:
                    latest[record.key] = record.value
            if fetched.next_offset < until and now_ms() > deadline:
                raise OldLogError(
                    f"{self.partition} is held by an open transaction: see `oncelog txn explain --topic {IMPORTS}`"
                )
        return from_records(self._key, latest.items())
