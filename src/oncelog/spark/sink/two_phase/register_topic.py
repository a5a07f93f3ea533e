"""The compacted topic ``__oncelog_sink``, as one query uses it: the partition of its register, and its present value.

The key is the query id, the partition the key's among the first ``PARTITIONS``, so that a topic to which somebody adds
partitions is read where it was written. What would forget registers is refused: fewer partitions, a
clean-up that is not compaction.

A ``read`` sees every write answered before it: it goes to the high watermark it found, and waits where open
transactions hold the last stable offset below it. Those are other drivers', and short. Where nothing was written since
the last one it is a single request.
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
READ_PATIENCE_MS: Final = 60_000
_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 * PART_BYTES),
    "max.message.bytes": str(2 * PART_BYTES + 64 * KIB),
    "min.cleanable.dirty.ratio": "0.1",
}
_FETCH: Final = FetchSettings(max_wait_ms=20, read_committed=True)
_AS_RELIABLE_AS: Final = TopicName("__transaction_state")
LOG: Final = logging.getLogger("oncelog.spark.sink")


class RegisterTopic:
    """One query's register; a read continues where the last one ended."""

    def __init__(self, client: Client, query: str) -> None:
        self._client = client
        self._query = query
        self._fetcher = Fetcher(client, _FETCH)
        self._where: TopicPartition | None = None
        self._position = 0
        self._reader = RegisterReader(query)
        self._parts_written = 0

    def read(self) -> Register | None:
        """The register as it is now; None if the query has none, or there is no such topic."""
        where = self.partition()
        if where is None:
            return None
        try:
            until = self._client.list_offsets({where: LATEST})[where].offset
        except UnknownTopic:  # deleted since
            self._where = None
            return None
        if self._position < until:
            self._catch_up(where, until)
        return self._reader.register()

    def close(self) -> None:
        """Close the connections of its own."""
        self._fetcher.close()

    def records(self, register: Register) -> list[RegisterRecord]:
        """The records to write for a register, in one transaction. Raises SinkError if it is too long."""
        records = to_records(self._query, register, max(self._reader.parts, self._parts_written))
        self._parts_written = len(records) - 1
        return records

    def partition(self) -> TopicPartition | None:
        """The register's partition, None without a topic. Raises SinkError for a topic with too few partitions."""
        if self._where is not None:
            return self._where
        found = self._client.metadata([REGISTERS]).get(REGISTERS)
        if found is None or not found.exists:
            return None
        if len(found.partitions) < PARTITIONS:
            raise SinkError(
                f"the topic {REGISTERS} has {len(found.partitions)} partitions, the sink needs {PARTITIONS}: let it be "
                "created by the sink"
            )
        self._where = TopicPartition(REGISTERS, partition_of_key(self._query.encode(), PARTITIONS))
        return self._where

    def ensure(self) -> TopicPartition:
        """The register's partition, after the topic was created or checked. Raises SinkError for one that is not
        compacted."""
        if self.partition() is None:
            replicas = self._replicas_of(_AS_RELIABLE_AS)
            ensure_topic(self._client, REGISTERS, PARTITIONS, _CONFIGS, replication_factor=replicas)
            self._client.topic(REGISTERS)
        else:
            self._check_configs()
        where = self.partition()
        assert where is not None
        return where

    def _replicas_of(self, topic: TopicName) -> int:
        found = self._client.metadata([topic]).get(topic)
        if found is None or not found.exists or not found.partitions:
            return -1
        return len(found.partitions[0].replicas) or -1

    def _check_configs(self) -> None:
        from oncelog.admin.configs import ResourceType, describe_configs

        with suppress(BrokerRefused):  # whoever may not look at configurations is believed to have left them alone
            for row in describe_configs(self._client, ResourceType.TOPIC, REGISTERS, ["cleanup.policy"]):
                if row.name == "cleanup.policy" and row.value != "compact":
                    raise SinkError(
                        f"the topic {REGISTERS} has cleanup.policy={row.value}, which forgets registers: set it to "
                        "compact"
                    )

    def _catch_up(self, where: TopicPartition, until: int) -> None:
        deadline = now_ms() + READ_PATIENCE_MS
        self._fetcher.assign({where: self._position}, {where: until})
        while len(self._fetcher):
            for fetched in self._fetcher.poll():
                if fetched.error_code:
                    self._skip_removed(where, fetched.error_code)
                    self._fetcher.assign({where: self._position}, {where: until})
                    break
                for record in read_fetched(fetched, read_committed=True):
                    self._reader.add(record.key, record.value)
                self._position = max(self._position, fetched.next_offset)
            if self._position < until and now_ms() > deadline:
                raise SinkError(
                    f"{where} is held by an open transaction: see `oncelog txn explain --topic {REGISTERS}`"
                )

    def _skip_removed(self, where: TopicPartition, error_code: int) -> None:
        """Go on at the log's start, if the refusal says that the position is below it. Raises BrokerRefused."""
        begin = self._client.list_offsets({where: EARLIEST})[where].offset
        if error_code != ErrorCode.OFFSET_OUT_OF_RANGE or begin <= self._position:
            raise BrokerRefused(error_code, f"fetch from {where}")
        self._position = begin
