"""Transactions made by hand, request by request, so that they can go wrong in every way that is known.

The requests are those of Transactions V1 (AddPartitionsToTxn 3, Produce 8, EndTxn 3): the epoch stays over the end of a
transaction, which is how KAFKA-9144 could happen. With ``transaction.partition.verification.enable=false`` a leader
takes a late batch as it did then.
"""

from __future__ import annotations

import time
from typing import Any, Final

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.admin.transactions.transactional_ids import describe_transaction
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client, FetchSettings
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.programs.cluster import TRANSACTION_KEY
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.waiting import HANG_S

WITHOUT_VERIFICATION: Final = {"transaction.partition.verification.enable": "false"}
INIT_VERSION: Final = 4
INIT_TWO_PHASE_VERSION: Final = 6
ADD_VERSION: Final = 3
PRODUCE_VERSION: Final = 8
END_VERSION: Final = 3
_PASSING: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def at(topic: str, partition: int = 0) -> TopicPartition:
    """A partition by name."""
    return TopicPartition(TopicName(topic), partition)


def make_topic(client: Client, name: str, partitions: int = 1) -> None:
    create_topic(client, NewTopic(name, partitions=partitions, replication_factor=1))
    client.topic(name)


def committed(client: Client, partition: TopicPartition) -> list[bytes]:
    """The records that a reader of committed records sees now."""
    end = client.list_offsets({partition: -1}, read_committed=True)[partition].offset
    fetched = client.fetch({partition: 0}, until={partition: end}, settings=FetchSettings(read_committed=True))
    return [record.value or b"" for item in fetched for record in read_fetched(item, read_committed=True)]


class ByHand:
    """A transactional producer that does exactly what it is told, wrong or right."""

    def __init__(self, client: Client, name: str, *, timeout_ms: int = 60_000, two_phase: bool = False) -> None:
        self.client = client
        self.name = name
        self._sequences: dict[TopicPartition, int] = {}
        message = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms, enable2_pc=two_phase)
        answer = self._ask(message, INIT_TWO_PHASE_VERSION if two_phase else INIT_VERSION)
        self.producer_id: int = answer.producer_id
        self.epoch: int = answer.producer_epoch

    def add(self, *partitions: TopicPartition) -> None:
        """Announce partitions to the coordinator."""
        topics = [
            AddPartitionsToTxnTopic(name=partition.topic, partitions=[partition.partition]) for partition in partitions
        ]
        message = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        deadline = time.monotonic() + HANG_S
        while True:
            answer = self._ask(message, ADD_VERSION)
            codes = {
                p.partition_error_code for t in answer.results_by_topic_v3_and_below for p in t.results_by_partition
            }
            if not codes - {0}:
                return
            if not codes <= {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, *_PASSING} or time.monotonic() > deadline:
                raise BrokerRefused(max(codes), f"partitions of {self.name}")

    def write(self, partition: TopicPartition, value: bytes = b"v", *, timestamp_ms: int | None = None) -> int:
        """Append a batch of one record, announced or not; its offset."""
        moment = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        sequence = self._sequences.get(partition, 0)
        batch = build_batch(
            [Record(0, moment, None, value, ())],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        message = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(
                    name=partition.topic,
                    partition_data=[PartitionProduceData(index=partition.partition, records=batch)],
                )
            ],
        )

        def attempt() -> int:
            link = self.client.link(self.client.leader(partition))
            answer = link.call(message, PRODUCE_VERSION).responses[0].partition_responses[0]
            if answer.error_code:
                raise BrokerRefused(answer.error_code, f"produce to {partition}")
            return int(answer.base_offset)

        offset = self.client.retrying(attempt, HANG_S * 1000)
        self._sequences[partition] = sequence + 1
        return offset

    def begin(self, *partitions: TopicPartition, timestamp_ms: int | None = None) -> list[int]:
        """Announce partitions and write to each; the offsets."""
        self.add(*partitions)
        return [self.write(partition, timestamp_ms=timestamp_ms) for partition in partitions]

    def end(self, *, commit: bool = True, wait: bool = True) -> None:
        """Decide, and wait until the markers are written."""
        message = EndTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )
        self._ask(message, END_VERSION)
        deadline = time.monotonic() + HANG_S
        while wait and self._is_ending():
            if time.monotonic() > deadline:
                raise RuntimeError(f"the transaction of {self.name} has not ended")

    def _is_ending(self) -> bool:
        """True while markers are to be written."""
        try:
            return describe_transaction(self.client, self.name).state.startswith("Prepare")
        except BrokerRefused as refusal:
            if refusal.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            return False  # the id has expired, as only one does whose transaction has ended

    def restart(self) -> None:
        """The epoch a new instance has; the sequences begin anew."""
        fresh = ByHand(self.client, self.name)
        self.producer_id, self.epoch, self._sequences = fresh.producer_id, fresh.epoch, {}

    def _ask(self, message: Any, version: int) -> Any:
        deadline = time.monotonic() + HANG_S
        while True:
            link = self.client.link(self.client.coordinator(self.name, TRANSACTION_KEY))
            answer = link.call(message, version)
            code = getattr(answer, "error_code", 0)
            if not code:
                return answer
            if code not in _PASSING or time.monotonic() > deadline:
                raise BrokerRefused(code, f"{type(message).__name__} of {self.name}")
            self.client.forget_coordinator(self.name, TRANSACTION_KEY)
            self.client.pause(0)
