"""Says requests and responses to a wire observer, in short."""

from __future__ import annotations

from typing import Any

from oncelog.records.builder import build_batch, end_transaction_marker
from oncelog.records.record import Record
from oncelog.sim.checkers.wire.observer import WireObserver
from oncelog.wire.messages import (
    end_txn,
    fetch,
    init_producer_id,
    join_group,
    list_offsets,
    offset_commit,
    offset_fetch,
    produce,
    sync_group,
    txn_offset_commit,
)

OLD, NEW = b"o" * 16, b"n" * 16
LAST_VERSION = 99


def batch(
    *values: str,
    at: int = 0,
    producer: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    leader_epoch: int = 0,
) -> bytes:
    """Data, of a producer or nobody's."""
    records = [Record(-1, 0, None, value.encode()) for value in values]
    return bytes(
        build_batch(
            records,
            base_offset=at,
            leader_epoch=leader_epoch,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def marker(*, commit: bool, at: int, producer: int, epoch: int, reign: int = 0, leader_epoch: int = 0) -> bytes:
    """The end of a transaction on a partition."""
    return bytes(
        end_transaction_marker(
            committed=commit,
            coordinator_epoch=reign,
            producer_id=producer,
            producer_epoch=epoch,
            timestamp=0,
            base_offset=at,
            leader_epoch=leader_epoch,
        )
    )


class Talk:
    """Every request is answered at once, unless :meth:`ask` and :meth:`answer` are used."""

    def __init__(self, *, is_cluster: bool = False) -> None:
        self.observer = WireObserver(is_cluster=is_cluster)
        self.broker_id = 1
        """The broker that is talked to."""
        self._correlation = 0

    def ask(self, request: object, version: int = LAST_VERSION) -> int:
        """The request comes; its number."""
        self._correlation += 1
        self.observer.received("c", self._correlation, version, request, self._correlation, self.broker_id)
        return self._correlation

    def answer(self, number: int, response: object) -> None:
        """The response is sent."""
        self.observer.answered("c", number, response, self._correlation)

    def say(self, request: object, response: object, version: int = LAST_VERSION) -> None:
        """Both."""
        self.answer(self.ask(request, version), response)

    def restart(self, *, keeps_all: bool = True) -> None:
        """The broker."""
        self.observer.restarted(self._correlation, keeps_all=keeps_all)

    def produce(self, records: bytes, offset: int, *, topic: str = "t", acks: int = -1, log_start: int = 0) -> None:
        """One batch, acknowledged at ``offset``."""
        data = [produce.PartitionProduceData(index=0, records=records)]
        answer = [produce.PartitionProduceResponse(index=0, base_offset=offset, log_start_offset=log_start)]
        self.say(
            produce.ProduceRequest(acks=acks, topic_data=[produce.TopicProduceData(name=topic, partition_data=data)]),
            produce.ProduceResponse(responses=[produce.TopicProduceResponse(name=topic, partition_responses=answer)]),
        )

    def fetch(self, *records: bytes, high: int = 100, **more: Any) -> None:
        """From the beginning; see :func:`fetched`."""
        self.say(fetch.FetchRequest(isolation_level=more.pop("isolation", 1)), fetched(*records, high=high, **more))

    def list_latest(self, offset: int, *, timestamp: int = -1, isolation: int = 0) -> None:
        """ListOffsets of a special timestamp."""
        partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        response = list_offsets.ListOffsetsPartitionResponse(partition_index=0, offset=offset)
        self.say(
            list_offsets.ListOffsetsRequest(
                isolation_level=isolation, topics=[list_offsets.ListOffsetsTopic(name="t", partitions=[partition])]
            ),
            list_offsets.ListOffsetsResponse(
                topics=[list_offsets.ListOffsetsTopicResponse(name="t", partitions=[response])]
            ),
        )

    def init(self, producer: int, epoch: int, *, owner: str | None = "x", having: tuple[int, int] = (-1, -1)) -> None:
        """InitProducerId."""
        self.say(
            init_producer_id.InitProducerIdRequest(
                transactional_id=owner, producer_id=having[0], producer_epoch=having[1]
            ),
            init_producer_id.InitProducerIdResponse(producer_id=producer, producer_epoch=epoch),
        )

    def end(self, producer: int, epoch: int, *, commit: bool, version: int = 5, owner: str = "x") -> None:
        """EndTxn, with the bump of version 5."""
        bumped = {"producer_id": producer, "producer_epoch": epoch + 1} if version >= 5 else {}
        self.say(
            end_txn.EndTxnRequest(transactional_id=owner, producer_id=producer, producer_epoch=epoch, committed=commit),
            end_txn.EndTxnResponse(**bumped),
            version,
        )

    def join(self, generation: int, leader: str = "m", member: str = "m", instance: str | None = None) -> None:
        """JoinGroup."""
        self.say(
            join_group.JoinGroupRequest(group_id="g", group_instance_id=instance),
            join_group.JoinGroupResponse(generation_id=generation, leader=leader, member_id=member),
        )

    def sync(self, generation: int) -> None:
        """SyncGroup."""
        self.say(sync_group.SyncGroupRequest(group_id="g", generation_id=generation), sync_group.SyncGroupResponse())

    def commit(self, offset: int, *, answered: bool = True, error: int = 0) -> None:
        """OffsetCommit."""
        partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topics = [offset_commit.OffsetCommitRequestTopic(name="t", partitions=[partition])]
        number = self.ask(offset_commit.OffsetCommitRequest(group_id="g", topics=topics))
        if answered:
            result = [offset_commit.OffsetCommitResponsePartition(partition_index=0, error_code=error)]
            answer = offset_commit.OffsetCommitResponseTopic(name="t", partitions=result)
            self.answer(number, offset_commit.OffsetCommitResponse(topics=[answer]))

    def commit_in_transaction(self, offset: int, producer: int, epoch: int) -> None:
        """TxnOffsetCommit."""
        partition = txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topics = [txn_offset_commit.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])]
        self.say(
            txn_offset_commit.TxnOffsetCommitRequest(
                group_id="g", producer_id=producer, producer_epoch=epoch, topics=topics
            ),
            txn_offset_commit.TxnOffsetCommitResponse(),
        )

    def read_back(self, offset: int, *, stable: bool = True) -> None:
        """OffsetFetch."""
        partitions = offset_fetch.OffsetFetchResponsePartitions(partition_index=0, committed_offset=offset)
        topic = offset_fetch.OffsetFetchResponseTopics(name="t", partitions=[partitions])
        self.say(
            offset_fetch.OffsetFetchRequest(require_stable=stable),
            offset_fetch.OffsetFetchResponse(
                groups=[offset_fetch.OffsetFetchResponseGroup(group_id="g", topics=[topic])]
            ),
        )


def fetched(
    *records: bytes,
    high: int = 100,
    stable: int | None = None,
    start: int = 0,
    topic: str = "t",
    topic_id: bytes = bytes(16),
    aborted: tuple[tuple[int, int], ...] = (),
) -> fetch.FetchResponse:
    """A Fetch response of one partition; ``aborted``: (producer id, first offset)."""
    data = fetch.PartitionData(
        partition_index=0,
        high_watermark=high,
        last_stable_offset=high if stable is None else stable,
        log_start_offset=start,
        aborted_transactions=[
            fetch.AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in aborted
        ],
        records=b"".join(records),
    )
    return fetch.FetchResponse(
        responses=[fetch.FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=[data])]
    )
