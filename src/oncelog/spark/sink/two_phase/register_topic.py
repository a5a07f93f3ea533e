"""One query's view of the compacted topic ``__oncelog_sink``: the partition of its register, and the current value.

The key, the query id, chooses among the first ``PARTITIONS`` partitions, even if the topic later gets more. A topic
with fewer, or another cleanup policy than compaction, would lose registers and is rejected. A ``read`` sees every write
answered before it.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import KIB
from oncelog.client.blocking import Client, Fetcher, FetchSettings
from oncelog.client.blocking.client import EARLIEST, LATEST
from oncelog.client.blocking.link import now_ms
from oncelog.client.blocking.transaction_admin import ensure_topic
from oncelog.client.errors import BrokerRefused, UnknownTopic
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.partitioner import partition_of_key
from oncelog.spark.session.errors import SinkError
from oncelog.spark.sink.two_phase.register import Register
from oncelog.spark.sink.two_phase.register_records import PART_BYTES, RegisterReader, RegisterRecord, to_records

REGISTERS: Final = TopicName("__oncelog_sink")
PARTITIONS: Final = 8
READ_TIMEOUT_MS: Final = 60_000
_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 * PART_BYTES),
    "max.message.bytes": str(2 * PART_BYTES + 64 * KIB),
    "min.cleanable.dirty.ratio": "0.1",
}
_FETCH: Final = FetchSettings(max_wait_ms=20, read_committed=True)
_REPLICATION_MODEL: Final = TopicName("__transaction_state")
LOG: Final = logging.getLogger("oncelog.spark.sink")


class RegisterTopic:
    def __init__(self, client: Client, query: str) -> None:
        self._client = client
        self._query = query
        self._fetcher = Fetcher(client, _FETCH)
        self._partition: TopicPartition | None = None
        self._position = 0
        self._reader = RegisterReader(query)
        self._parts_written = 0

    def read(self) -> Register | None:
        """The current register; None if the query has none, or the topic does not exist."""
        partition = self.partition()
        if partition is None:
            return None
        try:
            # Every write answered before this request is below the high watermark it returns.
            end_offset = self._client.list_offsets({partition: LATEST})[partition].offset
        except UnknownTopic:  # deleted meanwhile
            self._partition = None
            return None
        # Nothing was written since the last read otherwise: a single request is enough.
        if self._position < end_offset:
            self._catch_up(partition, end_offset)
        return self._reader.register()

    def close(self) -> None:
        self._fetcher.close()

    def records(self, register: Register) -> list[RegisterRecord]:
        records = to_records(self._query, register, max(self._reader.parts, self._parts_written))
        self._parts_written = len(records) - 1
        return records

    def partition(self) -> TopicPartition | None:
        """The register's partition; None without a topic. Raises SinkError for too few partitions."""
        if self._partition is not None:
            return self._partition
        info = self._client.metadata([REGISTERS]).get(REGISTERS)
        if info is None or not info.exists:
            return None
        if len(info.partitions) < PARTITIONS:
            raise SinkError(
                f"the topic {REGISTERS} has {len(info.partitions)} partitions, the sink needs {PARTITIONS}: let the "
                "sink create it"
            )
        self._partition = TopicPartition(REGISTERS, partition_of_key(self._query.encode(), PARTITIONS))
        return self._partition

    def ensure(self) -> TopicPartition:
        """Create or check the topic. Returns the register's partition. Raises SinkError if it is not compacted."""
        if self.partition() is None:
            # The register must not be less reliable than the transactions it decides.
            replicas = self._replicas_of(_REPLICATION_MODEL)
            ensure_topic(self._client, REGISTERS, PARTITIONS, _CONFIGS, replication_factor=replicas)
            self._client.topic(REGISTERS)
        else:
            self._check_configs()
        partition = self.partition()
        assert partition is not None
        return partition

    def _replicas_of(self, topic: TopicName) -> int:
        info = self._client.metadata([topic]).get(topic)
        if info is None or not info.exists or not info.partitions:
            return -1
        return len(info.partitions[0].replicas) or -1

    def _check_configs(self) -> None:
        from oncelog.admin.configs import ResourceType, describe_configs

        with suppress(BrokerRefused):  # without permission to read configurations, assume they are unchanged
            for row in describe_configs(self._client, ResourceType.TOPIC, REGISTERS, ["cleanup.policy"]):
                if row.name == "cleanup.policy" and row.value != "compact":
                    raise SinkError(
                        f"the topic {REGISTERS} has cleanup.policy={row.value}, which loses registers: set it to "
                        "compact"
                    )

    def _catch_up(self, partition: TopicPartition, end_offset: int) -> None:
        deadline = now_ms() + READ_TIMEOUT_MS
        self._fetcher.assign({partition: self._position}, {partition: end_offset})
        while len(self._fetcher):
            for fetched in self._fetcher.poll():
                if fetched.error_code:
                    self._skip_removed(partition, fetched.error_code)
                    self._fetcher.assign({partition: self._position}, {partition: end_offset})
                    break
                for record in read_fetched(fetched, read_committed=True):
                    self._reader.add(record.key, record.value)
                self._position = max(self._position, fetched.next_offset)
            # Open transactions that hold the last stable offset belong to other drivers, and are short.
            if self._position < end_offset and now_ms() > deadline:
                raise SinkError(
                    f"{partition} is held by an open transaction: see `oncelog txn explain --topic {REGISTERS}`"
                )

    def _skip_removed(self, partition: TopicPartition, error_code: int) -> None:
        """Continue at the log's start if the position is below it. Raises BrokerRefused for other errors."""
        begin = self._client.list_offsets({partition: EARLIEST})[partition].offset
        if error_code != ErrorCode.OFFSET_OUT_OF_RANGE or begin <= self._position:
            raise BrokerRefused(error_code, f"fetch from {partition}")
        self._position = begin
