"""Questions about producers and transactions."""

from __future__ import annotations

from typing import Any

from tests.conformance.authorization.questions.asking import BOGUS, Known, Question, make, named
from tests.conformance.authorization.world import GROUP, HIDDEN, TOPIC, TRANSACTIONAL_ID, UNKNOWN


def init_producer_id(name: str | None, *, two_phase: bool = False) -> Question:
    def question(version: int, _known: Known) -> Any:
        if two_phase and version < 6:
            return None
        return make(
            "init_producer_id.InitProducerIdRequest",
            transactional_id=name,
            transaction_timeout_ms=60_000,
            enable2_pc=two_phase,
        )

    return question


def add_partitions_to_txn(version: int, _known: Known) -> Any:
    topics = [
        make("add_partitions_to_txn.AddPartitionsToTxnTopic", name=name, partitions=[0]) for name in (TOPIC, HIDDEN)
    ]
    identity = {"producer_id": BOGUS, "producer_epoch": 0, "topics": topics}
    if version < 4:
        old = {f"v3_and_below_{key}": value for key, value in identity.items()}
        return make(
            "add_partitions_to_txn.AddPartitionsToTxnRequest",
            v3_and_below_transactional_id=TRANSACTIONAL_ID,
            **old,
        )
    transaction = make(
        "add_partitions_to_txn.AddPartitionsToTxnTransaction",
        transactional_id=TRANSACTIONAL_ID,
        verify_only=True,
        **identity,
    )
    return make("add_partitions_to_txn.AddPartitionsToTxnRequest", transactions=[transaction])


def add_one_partition_to_txn(version: int, known: Known) -> Any:
    if version >= 4:
        return None
    partitions = add_partitions_to_txn(version, known)
    del partitions.v3_and_below_topics[1:]
    return partitions


def add_offsets_to_txn(_version: int, _known: Known) -> Any:
    return make(
        "add_offsets_to_txn.AddOffsetsToTxnRequest",
        transactional_id=TRANSACTIONAL_ID,
        producer_id=BOGUS,
        producer_epoch=0,
        group_id=GROUP,
    )


def end_txn(_version: int, _known: Known) -> Any:
    return make(
        "end_txn.EndTxnRequest",
        transactional_id=TRANSACTIONAL_ID,
        producer_id=BOGUS,
        producer_epoch=0,
        committed=True,
    )


def write_txn_markers(_version: int, _known: Known) -> Any:
    topics = [make("write_txn_markers.WritableTxnMarkerTopic", name=TOPIC, partition_indexes=[77])]
    marker = make("write_txn_markers.WritableTxnMarker", producer_id=BOGUS, producer_epoch=0, topics=topics)
    return make("write_txn_markers.WriteTxnMarkersRequest", markers=[marker])


def txn_offset_commit(version: int, known: Known) -> Any:
    part = make("txn_offset_commit.TxnOffsetCommitRequestPartition", partition_index=0, committed_offset=1)
    topics = [
        make("txn_offset_commit.TxnOffsetCommitRequestTopic", partitions=[part], **topic)
        for topic in named((TOPIC, HIDDEN, UNKNOWN), known, version >= 6)
    ]
    return make(
        "txn_offset_commit.TxnOffsetCommitRequest",
        transactional_id=TRANSACTIONAL_ID,
        group_id=GROUP,
        producer_id=BOGUS,
        producer_epoch=0,
        topics=topics,
    )


def describe_producers(_version: int, _known: Known) -> Any:
    topics = [
        make("describe_producers.TopicRequest", name=name, partition_indexes=[0])
        for name in (TOPIC, HIDDEN, UNKNOWN, "bad name")
    ]
    return make("describe_producers.DescribeProducersRequest", topics=topics)


def describe_transactions(_version: int, _known: Known) -> Any:
    ids = [TRANSACTIONAL_ID, "open", "nobodys"]
    return make("describe_transactions.DescribeTransactionsRequest", transactional_ids=ids)


def list_transactions(_version: int, _known: Known) -> Any:
    return make("list_transactions.ListTransactionsRequest")
