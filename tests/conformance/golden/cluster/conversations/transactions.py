"""Transactions over partitions of several leaders: written, ended, asked about, and marked by who may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from oncelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.list_transactions import ListTransactionsRequest
from oncelog.wire.messages.produce import ProduceRequest
from oncelog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.conformance.golden.cluster.conversation import Conversation
from tests.conformance.golden.cluster.conversations.leadership import until_followed
from tests.conformance.golden.cluster.corpus import TRANSACTION_COORDINATOR
from tests.conformance.golden.cluster.requests import describe_producers, fetch, list_offsets, produce
from tests.peers.clients.sweep.wire import batch, versions

_TOPIC: Final = "x-topic"
_LEADERS: Final = {0: 1, 1: 2, 2: 3}
"""Partition → leader."""


class _Producer:
    """A transactional producer that writes to all partitions, one batch each time."""

    def __init__(self, talk: Conversation, name: str, topic_id: bytes) -> None:
        self._talk = talk
        self.name = name
        self._topic_id = topic_id
        begin = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=900_000)
        answer = talk.ask(TRANSACTION_COORDINATOR, begin, 4)
        self.id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequence = 0

    def add(self) -> None:
        """Add the partitions."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=_TOPIC, partitions=list(_LEADERS))],
        )
        self._talk.ask(TRANSACTION_COORDINATOR, request, 3)

    def write(self, version: int = 9) -> None:
        """Write to each partition at its leader."""
        for partition, leader in _LEADERS.items():
            self._talk.ask(leader, self.request(partition), version)
        self._sequence += 1

    def request(self, partition: int) -> ProduceRequest:
        """A batch for a partition."""
        who = {"producer_id": self.id, "producer_epoch": self.epoch, "base_sequence": self._sequence}
        records = batch(b"value", transactional=True, **who)
        return produce(_TOPIC, self._topic_id, partition=partition, records=records, transactional_id=self.name)

    def end(self, *, committed: bool, version: int = 3) -> None:
        """Commit or abort; returns when the markers are read at every replica."""
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, committed=committed
        )
        self._talk.ask(TRANSACTION_COORDINATOR, request, version)


def _over_leaders(talk: Conversation) -> None:
    topic_id = talk.topic(_TOPIC, {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)})
    producer = _Producer(talk, "x-over", topic_id)
    end = 0
    for committed in (True, False, True):
        producer.add()
        producer.write()
        _ask_open(talk, topic_id)
        producer.end(committed=committed)
        end += 2
        for partition in _LEADERS:
            _until_stable(talk, topic_id, partition, end)
        _until_complete(talk, "CompleteCommit" if committed else "CompleteAbort")
        _ask_open(talk, topic_id)
    for version in (4, 11, 17):
        for partition in _LEADERS:
            whole = {"isolation_level": 1}
            talk.ask_each(fetch(_TOPIC, topic_id, partition=partition, whole=whole), version)


def _until_stable(talk: Conversation, topic_id: bytes, partition: int, end: int) -> None:
    for broker_id in talk.running:
        talk.until(
            broker_id,
            fetch(_TOPIC, topic_id, partition=partition, whole={"isolation_level": 1}),
            12,
            lambda answer: answer.responses[0].partitions[0].last_stable_offset == end,
            f"has the last stable offset {end} of partition {partition}",
        )


def _until_complete(talk: Conversation, state: str) -> None:
    talk.until(
        TRANSACTION_COORDINATOR,
        DescribeTransactionsRequest(transactional_ids=["x-over"]),
        0,
        lambda answer: answer.transaction_states[0].transaction_state == state,
        f"says {state}",
    )


def _ask_open(talk: Conversation, topic_id: bytes) -> None:
    for partition in _LEADERS:
        talk.ask_each(describe_producers(_TOPIC, partition), 0)
        leader = _LEADERS[partition]
        talk.ask(leader, list_offsets(_TOPIC, partition=partition, isolation_level=1), 7)
        talk.ask(leader, list_offsets(_TOPIC, partition=partition), 7)
        talk.ask(leader, fetch(_TOPIC, topic_id, partition=partition, whole={"isolation_level": 1}), 17)
    talk.ask_each(DescribeTransactionsRequest(transactional_ids=["x-over"]), 0)
    talk.ask_each(ListTransactionsRequest(transactional_id_pattern="x-over"), 2)


def _produced_elsewhere(talk: Conversation) -> None:
    """Transactional batches at brokers that do not lead, and of partitions that were not added."""
    topic_id = talk.topic(_TOPIC, {0: (1, 2), 1: (2, 3), 2: (3, 1)})
    producer = _Producer(talk, "x-produce", topic_id)
    for version in (8, 9, 10, 11):
        talk.ask_each(producer.request(0), version)
    producer.add()
    for version in (9, 10):
        for broker_id in (2, 3):
            talk.ask(broker_id, producer.request(0), version)
    producer.write()
    until_followed(talk, _TOPIC, topic_id, 2, 1)
    producer.end(committed=False)


def _markers(talk: Conversation) -> None:
    """Markers of nobody's at brokers that lead, follow, and have nothing of the partition."""
    topic_id = talk.topic(_TOPIC, {0: (1, 2), 1: (2, 3), 2: (3, 1)})
    producer = _Producer(talk, "x-markers", topic_id)
    producer.add()
    producer.write()
    for version in versions(WriteTxnMarkersRequest):
        for broker_id in (2, 3):
            talk.ask(broker_id, _marker(producer, [0, 7]), version)
        talk.ask_each(_marker(producer, [7]), version)
        talk.ask_each(_marker(producer, [0], topic="x-nowhere"), version)
    talk.ask_each(describe_producers(_TOPIC), 0)
    producer.end(committed=True)


def _marker(producer: _Producer, partitions: list[int], topic: str = _TOPIC, **fields: Any) -> WriteTxnMarkersRequest:
    topics = [WritableTxnMarkerTopic(name=topic, partition_indexes=partitions)]
    marker = WritableTxnMarker(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        topics=topics,
        coordinator_epoch=0,
        **fields,
    )
    return WriteTxnMarkersRequest(markers=[marker])


CONVERSATIONS: Final[dict[str, Callable[[Conversation], None]]] = {
    "transactions-over-leaders": _over_leaders,
    "transactional-produce": _produced_elsewhere,
    "markers": _markers,
}
