"""Questions about records: written, fetched, deleted, and where they begin and end."""

from __future__ import annotations

from typing import Any

from tests.conformance.authorization.questions.asking import BOGUS, Known, make, named
from tests.conformance.authorization.world import HIDDEN, TOPIC, TRANSACTIONAL_ID, UNKNOWN
from tests.peers.clients.sweep.wire import batch


def produce(version: int, known: Known, *, transactional_id: str | None = None, **batch_fields: Any) -> Any:
    by_id = version >= 13
    return make(
        "produce.ProduceRequest",
        acks=-1,
        timeout_ms=5000,
        transactional_id=transactional_id,
        topic_data=[
            make(
                "produce.TopicProduceData",
                **topic,
                partition_data=[make("produce.PartitionProduceData", index=0, records=batch(b"v", **batch_fields))],
            )
            for topic in named((TOPIC, HIDDEN, UNKNOWN), known, by_id)
        ],
    )


def produce_transactional(version: int, known: Known) -> Any:
    fields = {"producer_id": BOGUS, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    return produce(version, known, transactional_id=TRANSACTIONAL_ID, **fields)


def fetch(version: int, known: Known, replica: int = -1) -> Any:
    partition = make("fetch.FetchPartition", partition=0, partition_max_bytes=1)
    topics = [
        make("fetch.FetchTopic", partitions=[partition], **({"topic": t["name"]} if "name" in t else t))
        for t in named((TOPIC, HIDDEN, UNKNOWN), known, version >= 13)
    ]
    state = make("fetch.ReplicaState", replica_id=replica) if version >= 15 else None
    old = replica if version < 15 else -1
    return make("fetch.FetchRequest", replica_id=old, replica_state=state, max_bytes=1, topics=topics)


def fetch_as_replica(version: int, known: Known) -> Any:
    """CVE-2018-1288: a consumer that says it is a broker."""
    return fetch(version, known, replica=1)


def list_offsets(_version: int, _known: Known) -> Any:
    return make(
        "list_offsets.ListOffsetsRequest",
        replica_id=-1,
        topics=[
            make(
                "list_offsets.ListOffsetsTopic",
                name=name,
                partitions=[make("list_offsets.ListOffsetsPartition", partition_index=0, timestamp=-2)],
            )
            for name in (TOPIC, HIDDEN, UNKNOWN)
        ],
    )


def delete_records(_version: int, _known: Known) -> Any:
    part = make("delete_records.DeleteRecordsPartition", partition_index=0, offset=0)
    topics = [
        make("delete_records.DeleteRecordsTopic", name=name, partitions=[part]) for name in (TOPIC, HIDDEN, UNKNOWN)
    ]
    return make("delete_records.DeleteRecordsRequest", topics=topics, timeout_ms=5000)


def offset_for_leader_epoch(_version: int, _known: Known) -> Any:
    part = make("offset_for_leader_epoch.OffsetForLeaderPartition", partition=0, leader_epoch=0)
    topics = [
        make("offset_for_leader_epoch.OffsetForLeaderTopic", topic=name, partitions=[part])
        for name in (TOPIC, HIDDEN, UNKNOWN)
    ]
    return make("offset_for_leader_epoch.OffsetForLeaderEpochRequest", replica_id=-1, topics=topics)
