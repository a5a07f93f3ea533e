"""A client that commits offsets in transactions, through a node that a Driver drives: requests in short."""

from __future__ import annotations

from oncelog.base.errors import ErrorCode
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

V1, V2 = 3, 5
"""EndTxn as clients of Transactions V1 and V2 send it."""
ADDS_PARTITION = 5
TOPIC = "t"


class Copier:
    """One producer with its transactional id, which commits offsets of topic ``t`` for a group."""

    def __init__(self, driver, name: str = "x", group: str = "g", *, version: int = ADDS_PARTITION) -> None:
        self.driver = driver
        self.name = name
        self.group = group
        self.version = version
        self.producer_id, self.epoch = -1, -1
        self.connect()

    def connect(self) -> None:
        """A connection (after a restart: another one), and the internal topics, which the first look-up creates."""
        self.peer = self.driver.connect()
        for key_type, key in ((0, self.group), (1, self.name)):
            self.peer.ask(FindCoordinatorRequest(key=key, key_type=key_type), 3)

    def init(self) -> Copier:
        """InitProducerId: a new instance."""
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        reply = self.peer.ask(request, 4)
        assert reply.error_code == 0, ErrorCode(reply.error_code)
        self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch
        return self

    def adding(self, group: str) -> AddOffsetsToTxnRequest:
        """AddOffsetsToTxn."""
        return AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
        )

    def add_offsets(self) -> ErrorCode:
        """AddOffsetsToTxn, answered."""
        return ErrorCode(self.peer.ask(self.adding(self.group), 3).error_code)

    def request(self, offset: int = 7, partition: int = 0, *, topic: str = TOPIC, **fields) -> TxnOffsetCommitRequest:
        """TxnOffsetCommit of one partition."""
        committed = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        values = {
            "transactional_id": self.name,
            "group_id": self.group,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }
        topics = [TxnOffsetCommitRequestTopic(name=topic, partitions=[committed])]
        return TxnOffsetCommitRequest(**{**values, **fields}, topics=topics)

    def commit(self, offset: int = 7, partition: int = 0, *, version: int | None = None, **fields) -> ErrorCode:
        """TxnOffsetCommit of one partition, answered."""
        request = self.request(offset, partition, **fields)
        return outcome(self.peer.ask(request, self.version if version is None else version))

    @property
    def end_version(self) -> int:
        """The EndTxn that goes with the client's TxnOffsetCommit."""
        return V2 if self.version >= ADDS_PARTITION else V1

    def ending(self, *, committed: bool) -> EndTxnRequest:
        """EndTxn."""
        return EndTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, committed=committed
        )

    def end(self, *, committed: bool = True) -> ErrorCode:
        """EndTxn, answered; takes the new epoch over."""
        reply = self.peer.ask(self.ending(committed=committed), self.end_version)
        if self.end_version == V2 and reply.error_code == 0:
            self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch
        return ErrorCode(reply.error_code)

    def commit_plainly(self, offset: int, partition: int = 0) -> ErrorCode:
        """OffsetCommit, outside any transaction."""
        committed = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[committed])]
        reply = self.peer.ask(OffsetCommitRequest(group_id=self.group, topics=topics), 8)
        return ErrorCode(reply.topics[0].partitions[0].error_code)

    def fetch(self, partition: int = 0, *, stable: bool = True) -> int | ErrorCode:
        """OffsetFetch of one partition: the offset, or the error."""
        group = OffsetFetchRequestGroup(
            group_id=self.group, topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[partition])]
        )
        reply = self.peer.ask(OffsetFetchRequest(groups=[group], require_stable=stable), 8).groups[0]
        assert reply.error_code == 0, ErrorCode(reply.error_code)
        result = reply.topics[0].partitions[0]
        return ErrorCode(result.error_code) if result.error_code else result.committed_offset

    def delete_group(self) -> ErrorCode:
        """DeleteGroups."""
        return ErrorCode(self.peer.ask(DeleteGroupsRequest(groups_names=[self.group]), 2).results[0].error_code)

    def group_state(self) -> str:
        """ListGroups; empty when there is no such group."""
        listed = self.peer.ask(ListGroupsRequest(), 4).groups
        return next((group.group_state for group in listed if group.group_id == self.group), "")


def outcome(reply) -> ErrorCode:
    """The answer to a TxnOffsetCommit of one partition."""
    return ErrorCode(reply.topics[0].partitions[0].error_code)
