"""Transactions in logs, as leaders and coordinators tell of them.

Transactional Produce in every version, WriteTxnMarkers, DescribeProducers, DescribeTransactions, ListTransactions, and
the feature ``transaction.version``.
"""

from __future__ import annotations

from typing import Any, Final

from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.wire.messages.list_transactions import ListTransactionsRequest
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from oncelog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.peers.clients.sweep.transactions import Producer, add, describe, end, init
from tests.peers.clients.sweep.wire import Sweep, Wire, batch, versions

V2_PRODUCE: Final = 12


def produce(
    wire: Wire,
    producer: Producer,
    topic: tuple[str, bytes],
    sequence: int = 0,
    *,
    version: int = 9,
    name: str | None = "",
    transactional: bool = True,
) -> int:
    """One batch of two records; the error code."""
    records = batch(
        b"a",
        b"b",
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    data = TopicProduceData(
        name=topic[0], topic_id=topic[1], partition_data=[PartitionProduceData(index=0, records=records)]
    )
    request = ProduceRequest(
        transactional_id=producer.name if name == "" else name, acks=-1, timeout_ms=5000, topic_data=[data]
    )
    code: int = wire.call(request, version).responses[0].partition_responses[0].error_code
    return code


def look(wire: Wire, topic: tuple[str, bytes], *, records: bool = True) -> None:
    """The ends of the log for both kinds of readers, the records they read, and the producers it knows."""
    for isolation in (0, 1):
        request = ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)
        topics = [ListOffsetsTopic(name=topic[0], partitions=[request])]
        wire.call(ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics), 7)
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
        fetched = [FetchTopic(topic=topic[0], topic_id=topic[1], partitions=[partition])]
        if records:
            wire.call(
                FetchRequest(
                    topics=fetched, max_wait_ms=1, min_bytes=1, max_bytes=10_000_000, isolation_level=isolation
                ),
                12,
            )
    wire.call(DescribeProducersRequest(topics=[TopicRequest(name=topic[0], partition_indexes=[0])]), 0)


def _produce(wire: Wire) -> None:
    for version in versions(ProduceRequest):
        topic = (f"sq-{version}", wire.topic(f"sq-{version}"))
        name = f"sq-produce-{version}"
        init(wire, name)
        producer = init(wire, name)
        newer = version >= V2_PRODUCE
        if not newer:
            produce(wire, producer, topic, version=version)
            add(wire, producer, (topic[0], 0))
        produce(wire, producer.with_epoch(0), topic, version=version)
        produce(wire, producer.with_epoch(5), topic, version=version)
        produce(wire, producer._replace(id=producer.id + 100_000), topic, version=version)
        produce(wire, producer, topic, version=version, name=None)
        produce(wire, producer, topic, version=version, name="somebody-else")
        produce(wire, producer, topic, version=version)
        produce(wire, producer, topic, version=version)
        produce(wire, producer, topic, 2, version=version)
        produce(wire, producer, topic, 9, version=version)
        produce(wire, producer, topic, 4, version=version, transactional=False)
        describe(wire, name)
        look(wire, topic)
        after = end(wire, producer, version=5 if newer else 3)
        look(wire, topic)
        produce(wire, producer, topic, 4, version=version)
        produce(wire, producer, topic, 4, version=version, transactional=False)
        look(wire, topic)
        if newer:
            produce(wire, after, topic, version=version)
        else:
            add(wire, after, (topic[0], 0))
            produce(wire, after, topic, 4, version=version)
        end(wire, after, committed=False, version=5 if newer else 3)
        look(wire, topic)
        describe(wire, name)


def _marker(producer: Producer, topic: str, *indexes: int, **fields: Any) -> WritableTxnMarker:
    topics = [WritableTxnMarkerTopic(name=topic, partition_indexes=list(indexes or (0,)))]
    return WritableTxnMarker(
        **{
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            "topics": topics,
            "transaction_result": False,
            "coordinator_epoch": 0,
            **fields,
        }
    )


def _markers(wire: Wire) -> None:
    for version in versions(WriteTxnMarkersRequest):
        topic = (f"sm-{version}", wire.topic(f"sm-{version}", 2))
        name = f"sm-marker-{version}"
        init(wire, name)
        producer = init(wire, name)
        add(wire, producer, (topic[0], 0), (topic[0], 1))
        produce(wire, producer, topic)

        def write(*markers: WritableTxnMarker, at: int = version) -> None:
            wire.call(WriteTxnMarkersRequest(markers=list(markers)), at)

        write()
        write(_marker(producer, "sm-none"))
        write(_marker(producer, topic[0], 7), _marker(producer, topic[0], 1))
        write(_marker(producer.with_epoch(0), topic[0]))
        write(_marker(producer, topic[0], coordinator_epoch=-1, transaction_version=2))
        look(wire, topic)
        write(_marker(producer, topic[0], 0, 1, 9, coordinator_epoch=3))
        look(wire, topic)
        write(_marker(producer, topic[0], coordinator_epoch=3, transaction_version=2))
        write(_marker(producer, topic[0], coordinator_epoch=2))
        write(_marker(producer, topic[0], coordinator_epoch=-1))
        write(_marker(producer.with_epoch(0), topic[0], coordinator_epoch=3))
        write(_marker(producer.with_epoch(4), topic[0], coordinator_epoch=4), _marker(producer, topic[0], 1))
        write(_marker(producer._replace(id=777_777), topic[0], transaction_result=True))
        look(wire, topic)


def _describe_producers(wire: Wire) -> None:
    topic = ("sd-producers", wire.topic("sd-producers", 2))
    requests = [
        TopicRequest(name="sd-producers", partition_indexes=[0, 1, 5, -1]),
        TopicRequest(name="sd-none", partition_indexes=[0]),
        TopicRequest(name="not valid", partition_indexes=[0]),
        TopicRequest(name="", partition_indexes=[0]),
        TopicRequest(name="sd-producers", partition_indexes=[]),
    ]
    wire.call(DescribeProducersRequest(topics=requests), 0)
    producer = init(wire, "sd-producer")
    add(wire, producer, ("sd-producers", 0))
    produce(wire, producer, topic)
    produce(wire, producer, topic, 2)
    wire.call(DescribeProducersRequest(topics=requests), 0)
    end(wire, producer)
    wire.call(DescribeProducersRequest(topics=requests), 0)
    wire.call(DescribeProducersRequest(topics=[]), 0)


def _describe_and_list(wire: Wire) -> None:
    wire.topic("sl-one")
    empty = init(wire, "sl-empty")
    ongoing = init(wire, "sl-ongoing")
    add(wire, ongoing, ("sl-one", 0))
    committed = init(wire, "sl-committed")
    add(wire, committed, ("sl-one", 0))
    end(wire, committed)
    aborted = init(wire, "sl-aborted.with(odd")
    add(wire, aborted, ("sl-one", 0))
    end(wire, aborted, committed=False)
    names = ["sl-empty", "sl-ongoing", "sl-committed", "sl-aborted.with(odd", "sl-unknown", "", "sl-empty"]
    wire.call(DescribeTransactionsRequest(transactional_ids=names), 0)
    wire.call(DescribeTransactionsRequest(transactional_ids=[]), 0)
    for version in versions(ListTransactionsRequest):

        def ask(at: int = version, **fields: Any) -> None:
            wire.call(ListTransactionsRequest(**fields), at)

        ask()
        for states in (["Empty"], ["Ongoing", "CompleteCommit"], ["empty"], ["Nonsense", "Empty"], ["Dead"], ["", "x"]):
            ask(state_filters=states)
        for ids in ([ongoing.id], [ongoing.id, empty.id, 999_999], [-1], [999_999]):
            ask(producer_id_filters=ids)
        ask(producer_id_filters=[ongoing.id], state_filters=["Empty"])
        for duration in (-2, 3_600_000, 2**62):
            ask(duration_filter=duration)
        for pattern in (
            "",
            "sl-.*",
            "sl-ongoing",
            "ongoing",
            ".*ing",
            "(?i)SL-.*",
            r"sl-\w+",
            r".*\(odd",
            "^sl-empty$",
        ):
            ask(transactional_id_pattern=pattern)
        for bad in ("(", "[", "*", "a{2,1}", r"(a)\1", "(?=a)", r"\Z", "a**", "(?P<n", "x" * 3 + "\\"):
            ask(transactional_id_pattern=bad)
    end(wire, ongoing)


def _set_feature(wire: Wire, level: int, upgrade_type: int, feature: str = "transaction.version") -> None:
    update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=upgrade_type)
    wire.call(UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update]), 1)
    wire.call(ApiVersionsRequest(client_software_name="sweep", client_software_version="1"), 4)


def _feature(wire: Wire) -> None:
    topic = ("sf-one", wire.topic("sf-one"))
    for level, upgrade_type in ((3, 1), (-1, 1), (1, 1), (1, 2), (2, 3), (2, 1), (1, 3), (0, 2), (1, 1), (2, 1)):
        _set_feature(wire, level, upgrade_type)
    for level in (0, 1, 2):
        _set_feature(wire, level, 2 if level == 0 else 1)
        # Apache Kafka 4.3 cannot write what EndTxn 5 decides with its records of level 0, and leaves the id pending.
        for version in (3, 5)[: level + 1]:
            name = f"sf-{level}-{version}"
            producer = init(wire, name)
            add(wire, producer, ("sf-one", 0))
            produce(wire, producer, topic)
            after = end(wire, producer, version=version)
            describe(wire, name)
            end(wire, after, committed=False, version=version)
            describe(wire, name)
            look(wire, topic, records=False)


SWEEPS: Final[dict[str, Sweep]] = {
    "transactions-produce": _produce,
    "transactions-markers": _markers,
    "transactions-describe-producers": _describe_producers,
    "transactions-describe-and-list": _describe_and_list,
    "transactions-feature": _feature,
}
