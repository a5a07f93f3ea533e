"""Requests of transactions that are refused, as a table: what is sent while a transaction is open, and the error.

The transaction is open in partition 0 of the topic and has the group's offset pending. Each case is sent on a
connection of its own. The same table is asked of Apache Kafka (``tests/interop/test_bad_transactions.py``), so the
errors here are its errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from oncelog.base.errors import ErrorCode as E
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from oncelog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.scenario.transactions.node_client import GROUP, SOURCE, TOPIC, Client

Request = tuple[Any, int]


@dataclass(frozen=True)
class Case:
    """``expected``: every error code in the answer, NONE left out; empty where the request is a harmless repetition."""

    name: str
    request: Callable[[Client], Request]
    expected: frozenset[E]
    v2: bool


def add_offsets(client: Client, version: int) -> Request:
    """AddOffsetsToTxn of the copiers' group."""
    request = AddOffsetsToTxnRequest(
        transactional_id=client.transactional_id,
        producer_id=client.producer_id,
        producer_epoch=client.epoch,
        group_id=GROUP,
    )
    return request, version


def commit_offset(client: Client, topic: str = SOURCE, **fields: Any) -> Request:
    """TxnOffsetCommit of offset 99."""
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=99)
    request = TxnOffsetCommitRequest(
        transactional_id=client.transactional_id,
        group_id=GROUP,
        producer_id=client.producer_id,
        producer_epoch=client.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        **fields,
    )
    return request, 5 if client.v2 else 3


def produce(
    client: Client,
    *,
    partition: int = 0,
    sequence: int = 2,
    named: bool = True,
    version: int | None = None,
    **batch: Any,
) -> Request:
    """Produce of one record; ``named``: the request has the transactional id."""
    identity = {"producer_id": client.producer_id, "producer_epoch": client.epoch, "base_sequence": sequence}
    record = Record(0, 1_700_000_000_000, None, b"bad", ())
    records = bytes(build_batch([record], **{**identity, "transactional": True, **batch}))
    data = [PartitionProduceData(index=partition, records=records)]
    request = ProduceRequest(
        transactional_id=client.transactional_id if named else None,
        acks=-1,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=data)],
    )
    return request, version or (12 if client.v2 else 11)


def the_same_batch(client: Client) -> Request:
    """The batch that opened the transaction."""
    values = [f"{client.transactional_id}/a/0/{number}".encode() for number in range(2)]
    return replace(client, sequences={}).produce_request(0, *values)


def initialise(client: Client, timeout_ms: int = 10_000, **expected: int) -> Request:
    """InitProducerId."""
    request = InitProducerIdRequest(
        transactional_id=client.transactional_id, transaction_timeout_ms=timeout_ms, **expected
    )
    return request, 5


def marker(client: Client, *, epoch: int, partition: int = 0) -> Request:
    """WriteTxnMarkers, as a coordinator would."""
    written = WritableTxnMarker(
        producer_id=client.producer_id,
        producer_epoch=epoch,
        transaction_result=True,
        coordinator_epoch=0,
        transaction_version=2 if client.v2 else 1,
        topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[partition])],
    )
    return WriteTxnMarkersRequest(markers=[written]), 2


def add(client: Client, *partitions: int) -> Request:
    """AddPartitionsToTxn, the version of V1's clients."""
    return client.add_request(*partitions), 3


def _strangers(v2: bool) -> Iterator[tuple[str, Callable[[Client], Client]]]:
    yield "an unknown id", lambda client: replace(client, transactional_id="unknown")
    yield "a later epoch", lambda client: replace(client, epoch=client.epoch + 1)
    yield "an earlier epoch", lambda client: replace(client, epoch=client.epoch - 1)
    yield "another producer id", lambda client: replace(client, producer_id=client.producer_id + 100_000)


def _of_strangers(v2: bool) -> Iterator[Case]:
    fenced = E.PRODUCER_FENCED
    unknown = E.INVALID_PRODUCER_ID_MAPPING
    of_coordinator = (unknown, fenced, fenced, unknown)
    late = E.INVALID_PRODUCER_EPOCH
    of_leader = (None, late, late, unknown)  # an open transaction is not verified again, by whomever it is continued
    for number, (who, change) in enumerate(_strangers(v2)):
        for text, ask, errors in (
            ("EndTxn", lambda client: client.end_request(True), of_coordinator),
            ("AddPartitionsToTxn", lambda client: add(client, 1), of_coordinator),
            ("AddOffsetsToTxn", lambda client: add_offsets(client, 4), of_coordinator),
            ("TxnOffsetCommit", commit_offset, of_leader),
            ("Produce", produce, of_leader),
        ):
            error = errors[number]
            if error is None:
                continue
            request = lambda client, change=change, ask=ask: ask(change(client))  # noqa: E731  # one a case
            yield Case(f"{text} of {who}", request, frozenset({error}), v2)


def _of_the_client(v2: bool) -> Iterator[Case]:
    for name, request, *expected in (
        (
            "a partition that does not exist",
            lambda c: add(c, 1, 9),
            E.UNKNOWN_TOPIC_OR_PARTITION,
            E.OPERATION_NOT_ATTEMPTED,
        ),
        (
            "a record for a partition that does not exist",
            lambda c: produce(c, partition=9),
            E.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            "an offset of a topic that does not exist",
            lambda c: commit_offset(c, "missing"),
            E.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        ("an id without transactional flag", lambda c: produce(c, transactional=False), E.INVALID_TXN_STATE),
        (
            "a transactional flag without id",
            lambda c: produce(c, named=False),
            E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        ("a control batch", lambda c: produce(c, control=True), E.INVALID_RECORD),
        ("a sequence gap", lambda c: produce(c, sequence=9), E.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ("a sequence before the first", lambda c: produce(c, sequence=-7), E.INVALID_RECORD),
        ("a time-out beyond the maximum", lambda c: initialise(c, 900_001), E.INVALID_TRANSACTION_TIMEOUT),
        ("no time-out", lambda c: initialise(c, 0), E.INVALID_TRANSACTION_TIMEOUT),
        ("a negative time-out", lambda c: initialise(c, -1), E.INVALID_TRANSACTION_TIMEOUT),
        (
            "an initialisation of a zombie",
            lambda c: initialise(c, producer_id=c.producer_id + 100_000, producer_epoch=0),
            E.PRODUCER_FENCED,
        ),
        ("an empty transactional id", lambda c: initialise(replace(c, transactional_id="")), E.INVALID_REQUEST),
        ("offsets of a generation that is not", lambda c: commit_offset(c, generation_id=3), E.UNKNOWN_MEMBER_ID),
        ("a marker of an earlier epoch", lambda c: marker(c, epoch=c.epoch - 1), E.INVALID_PRODUCER_EPOCH),
        (
            "a marker for a partition that does not exist",
            lambda c: marker(c, epoch=c.epoch, partition=9),
            E.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        ("the same partition again", lambda c: add(c, 0)),
        ("the same batch again", the_same_batch),
    ):
        yield Case(name, request, frozenset(expected), v2)


CASES: Final = [case for v2 in (True, False) for kind in (_of_strangers, _of_the_client) for case in kind(v2)]


def error_codes(answer: Any) -> frozenset[E]:
    """Every error code anywhere in an answer, NONE left out."""
    result: set[E] = set()
    for name in getattr(answer, "__slots__", ()) or getattr(answer, "__dict__", {}):
        value = getattr(answer, name)
        if name in ("error_code", "partition_error_code"):
            result.add(E(value))
        elif isinstance(value, list):
            result.update(code for item in value for code in error_codes(item))
    return frozenset(result - {E.NONE})
