"""Progress of imports: records of a compacted topic, in the same transactions as the imported messages.

A position has the offset in the old log, a mark of the bytes before it, and the topic's id: an import into a recreated
topic starts over. Records of an unknown version or kind are left alone.
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

# Not group offsets: brokers delete those of a group without members (offsets.retention.minutes, a week), and an import
# may pause for longer.
IMPORTS: Final = TopicName("__oncelog_imports")
PARTITIONS: Final = 8
READ_PATIENCE_MS: Final = 90_000  # Longer than the timeout of another import's transaction.
VERSION: Final = 1
_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(8 * MIB),
    "min.cleanable.dirty.ratio": "0.1",
    "min.compaction.lag.ms": "0",
}
_REPLICATION_MODEL: Final = TopicName("__transaction_state")


class ImportKey(NamedTuple):
    """Identifies an import: one log into one topic."""

    name: str
    topic: str

    @property
    def transactional_id(self) -> str:
        """The transactional id of the import's producer; each run fences the previous one."""
        return f"oncelog-import/{self.topic}/{self.name}"


class ImportPosition(NamedTuple):
    """The next byte of the old log to import, a mark of the bytes before it, and the topic's id (or "")."""

    offset: int
    mark: Mark
    topic_id: str


class PositionRecord(NamedTuple):
    key: bytes
    value: bytes


def to_record(key: ImportKey, partition: int, position: ImportPosition) -> PositionRecord:
    value = {"version": VERSION, "offset": position.offset, "topic_id": position.topic_id, "mark": position.mark}
    return PositionRecord(_json(["import", key.name, key.topic, partition]), _json(value))


def from_records(key: ImportKey, records: Iterable[tuple[bytes | None, bytes | None]]) -> dict[int, ImportPosition]:
    """Partition → position from an import's records, oldest first. Raises OldLogError for an unknown version."""
    positions: dict[int, ImportPosition] = {}
    for name, value in records:
        partition = _partition(key, name)
        if partition is None:
            continue
        if value is None:
            positions.pop(partition, None)
            continue
        position = _position(value)
        if position is None:
            raise OldLogError(
                f"import {key.name!r} into {key.topic} has an unreadable position in {IMPORTS}; "
                "it may come from a later version of oncelog"
            )
        positions[partition] = position
    return positions


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
    """The topic of positions, for one import."""

    def __init__(self, client: Client, key: ImportKey) -> None:
        self._client = client
        self._key = key
        self.partition = TopicPartition(IMPORTS, partition_of_key(key.transactional_id.encode(), PARTITIONS))
        """The partition that holds the import's records."""

    def ensure(self) -> None:
        """Create the topic if it does not exist. Raises BrokerRefused, and OldLogError if it has too few partitions."""
        topic = self._client.metadata([IMPORTS]).get(IMPORTS)
        if topic is None or not topic.exists:
            model = self._client.metadata([_REPLICATION_MODEL]).get(_REPLICATION_MODEL)
            replicas = len(model.partitions[0].replicas) if model is not None and model.exists else -1
            ensure_topic(self._client, IMPORTS, PARTITIONS, _CONFIGS, replication_factor=replicas or -1)
            topic = self._client.topic(IMPORTS)
        if len(topic.partitions) < PARTITIONS:
            raise OldLogError(
                f"the topic {IMPORTS} has {len(topic.partitions)} partitions, but import positions need "
                f"{PARTITIONS}; delete it and let the import create it"
            )

    def read(self) -> dict[int, ImportPosition]:
        """The committed positions. Raises OldLogError, BrokerRefused.

        Call it after the import's producer is initialised: then no earlier run can still commit.
        """
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
                    f"{self.partition} is blocked by an open transaction; see `oncelog txn explain --topic {IMPORTS}`"
                )
        return from_records(self._key, latest.items())
