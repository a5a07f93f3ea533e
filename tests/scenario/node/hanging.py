"""Transactional producers of Transactions V1 and V2 in front of a node, and what its leader says of what is open."""

from __future__ import annotations

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TransactionalId
from oncelog.base.transaction_verdicts import LATE_PADDING_MS
from oncelog.node.hanging.watch import RECHECK_MS
from oncelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.scenario.node.driver import Driver
from tests.scenario.node.requests import batch, create_topic, log_of, produce, produced

TIMEOUT_MS = 60_000
OLD_MS = TIMEOUT_MS + RECHECK_MS
"""By then everything that is older than its own time-out has been looked at."""
LATE_MS = 900_000 + LATE_PADDING_MS + RECHECK_MS
HOUR_MS = 3_600_000
UNVERIFIED = {
    "transaction.partition.verification.enable": "false",
    "transaction.two.phase.commit.enable": "true",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "1",
}


class Producer:
    """One transactional id; version 9 of Produce, with partitions added beforehand."""

    def __init__(self, driver: Driver, name: str, *, two_phase: bool = False) -> None:
        self.driver, self.name = driver, name
        self.peer = driver.connect()
        self.peer.ask(FindCoordinatorRequest(key=name, key_type=1), 3)
        self.sequences: dict[int, int] = {}
        self.two_phase = two_phase
        self.init()

    def init(self) -> None:
        """InitProducerId."""
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=TIMEOUT_MS, enable2_pc=self.two_phase
        )
        reply = self.peer.ask(request, 6)
        assert reply.error_code == 0, ErrorCode(reply.error_code)
        self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch
        self.sequences.clear()

    def add(self, *partitions: int) -> None:
        """AddPartitionsToTxn."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=list(partitions))],
        )
        topic = self.peer.ask(request, 3).results_by_topic_v3_and_below[0]
        assert {p.partition_error_code for p in topic.results_by_partition} == {0}

    def write(self, partition: int = 0, *, name: str | None = "") -> int:
        """Produce one record; its offset."""
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = sequence + 1
        records = batch(
            self.driver,
            b"v",
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        request = produce("t", records, partition)
        request.transactional_id = self.name if name == "" else name
        error_code, offset = produced(self.peer.ask(request, 9))
        assert error_code == 0, ErrorCode(error_code)
        return offset

    def end(self, *, committed: bool = True) -> None:
        """EndTxn."""
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, committed=committed
        )
        assert self.peer.ask(request, 3).error_code == 0

    def hang(self, partition: int = 0) -> int:
        """A transaction, and a write that comes after its marker (KAFKA-9144); where that begins."""
        self.add(partition)
        self.write(partition)
        self.end()
        return self.write(partition)


def made(config: dict[str, str] | None = None, partitions: int = 3, kind: type[Driver] = Driver) -> Driver:
    """A node that verifies nothing, with topic ``t``."""
    driver = kind({**UNVERIFIED, **(config or {})})
    create_topic(driver.connect(), "t", partitions)
    return driver


def told(driver: Driver, partition: int = 0) -> list[tuple[str | None, str | None]]:
    """(transactional id, verdict) of what is open, as DescribeProducers tells it."""
    assert driver.fatal is None, driver.fatal
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[partition])])
    result = driver.connect().ask(request, 0).topics[0].partitions[0]
    assert result.error_code == 0
    return [(p.transactional_id, p.verdict) for p in result.active_producers if p.current_txn_start_offset >= 0]


def abort(driver: Driver, producer: Producer, start_offset: int, partition: int = 0, **fields) -> ErrorCode:
    """An administrator's WriteTxnMarkers with a start offset (−1: a plain one)."""
    values = {"producer_epoch": producer.epoch, "coordinator_epoch": 0, **fields}
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        start_offset=start_offset,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[partition])],
        **values,
    )
    answer = driver.connect().ask(WriteTxnMarkersRequest(markers=[marker]), 1)
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


def stable(driver: Driver, partition: int = 0) -> bool:
    """True if nothing holds the last stable offset back."""
    log = log_of(driver, "t", partition)
    return log.last_stable_offset == log.high_watermark


def warnings(driver: Driver) -> list[str]:
    return [text for text in driver.reports if "transaction" in text]


def forget(driver: Driver, name: str) -> None:
    """The coordinator loses an id, as when it has expired."""
    shard = driver.node.transactions.shard_of(TransactionalId(name))
    assert shard is not None
    shard._transactions.remove(TransactionalId(name))
