"""Requests for groups and transactions at every broker: one coordinates, the others refuse; and after it has moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest
from oncelog.wire.messages.describe_groups import DescribeGroupsRequest
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.heartbeat import HeartbeatRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from oncelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.list_transactions import ListTransactionsRequest
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from oncelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from oncelog.wire.messages.sync_group import SyncGroupRequest
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.conformance.golden.cluster.conversation import Conversation
from tests.conformance.golden.cluster.corpus import GROUP_COORDINATOR, TRANSACTION_COORDINATOR
from tests.conformance.golden.cluster.readiness import until_coordinators
from tests.peers.clients.sweep.wire import versions

_TOPIC: Final = "c-topic"
_V2_SINCE: Final = 5


def _commit(group: str, topic_id: bytes, **fields: Any) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="m")
    topics = [OffsetCommitRequestTopic(name=_TOPIC, topic_id=topic_id, partitions=[partition])]
    return OffsetCommitRequest(group_id=group, topics=topics, **fields)


def _offsets(group: str, topic_id: bytes, version: int) -> OffsetFetchRequest:
    if version < 8:
        return OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(name=_TOPIC, partition_indexes=[0])])
    topics = [OffsetFetchRequestTopics(name=_TOPIC, topic_id=topic_id, partition_indexes=[0])]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])


def _group_requests(group: str, topic_id: bytes) -> Iterator[tuple[Any, int]]:
    for version in versions(OffsetCommitRequest):
        yield _commit(group, topic_id), version
    for version in versions(OffsetFetchRequest):
        yield _offsets(group, topic_id, version), version
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    times = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000}
    for version in versions(JoinGroupRequest):
        yield (
            JoinGroupRequest(
                group_id=group, member_id="nobody", protocol_type="consumer", protocols=protocols, **times
            ),
            version,
        )
    for version in versions(SyncGroupRequest):
        sync = SyncGroupRequest(group_id=group, generation_id=1, member_id="nobody", protocol_type="consumer")
        sync.protocol_name = "range"
        yield sync, version
    for version in versions(HeartbeatRequest):
        yield HeartbeatRequest(group_id=group, generation_id=1, member_id="nobody"), version
    for version in versions(LeaveGroupRequest):
        members = [MemberIdentity(member_id="nobody")]
        yield LeaveGroupRequest(group_id=group, member_id="nobody", members=members), version
    for version in versions(DescribeGroupsRequest):
        yield DescribeGroupsRequest(groups=[group, f"{group}-unknown"]), version
    requests = [OffsetDeleteRequestPartition(partition_index=0)]
    yield OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=_TOPIC, partitions=requests)]), 0
    for version in versions(DeleteGroupsRequest):
        yield DeleteGroupsRequest(groups_names=[f"{group}-unknown"]), version
    for version in versions(ListGroupsRequest):
        yield ListGroupsRequest(), version


def _groups(talk: Conversation) -> None:
    topic_id = talk.topic(_TOPIC, {0: (1, 2, 3)})
    talk.ask(GROUP_COORDINATOR, _commit("c-group", topic_id), 8)
    for request, version in _group_requests("c-group", topic_id):
        talk.ask_each(request, version)
    talk.stop(GROUP_COORDINATOR)
    until_coordinators(talk, TRANSACTION_COORDINATOR)
    for request, version in _group_requests("c-group", topic_id):
        talk.ask_each(request, version)
    talk.start(GROUP_COORDINATOR)
    for request, version in _group_requests("c-group", topic_id):
        talk.ask(GROUP_COORDINATOR, request, version)


def _transaction_requests(name: str, producer_id: int, epoch: int) -> Iterator[tuple[Any, int]]:
    """Requests for the transactional id, none of which changes what is open: the producer's epoch is not the one."""
    who = {"producer_id": producer_id, "producer_epoch": epoch}
    for version in versions(AddPartitionsToTxnRequest):
        topics = [AddPartitionsToTxnTopic(name=_TOPIC, partitions=[0])]
        if version < 4:
            yield (
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=name,
                    v3_and_below_producer_id=producer_id,
                    v3_and_below_producer_epoch=epoch,
                    v3_and_below_topics=topics,
                ),
                version,
            )
        else:
            for verify_only in (False, True):
                request = AddPartitionsToTxnTransaction(
                    transactional_id=name, topics=topics, verify_only=verify_only, **who
                )
                yield AddPartitionsToTxnRequest(transactions=[request]), version
    for version in versions(AddOffsetsToTxnRequest):
        yield AddOffsetsToTxnRequest(transactional_id=name, group_id="c-group", **who), version
    for version in versions(EndTxnRequest):
        yield EndTxnRequest(transactional_id=name, committed=True, **who), version
    yield DescribeTransactionsRequest(transactional_ids=[name, f"{name}-unknown"]), 0
    for version in versions(ListTransactionsRequest):
        yield ListTransactionsRequest(), version
    partitions = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
    for version in versions(TxnOffsetCommitRequest):
        topics_of = [TxnOffsetCommitRequestTopic(name=_TOPIC, partitions=partitions)]
        yield TxnOffsetCommitRequest(transactional_id=name, group_id="c-group", topics=topics_of, **who), version


def _transactions(talk: Conversation) -> None:
    topic_id = talk.topic(_TOPIC, {0: (1, 2, 3)})
    talk.ask(GROUP_COORDINATOR, _commit("c-group", topic_id), 8)
    begin = InitProducerIdRequest(transactional_id="c-tx", transaction_timeout_ms=900_000)
    for version in versions(InitProducerIdRequest):
        if version <= _V2_SINCE:
            talk.ask(1, begin, version)
            talk.ask(2, begin, version)
    began = talk.ask(TRANSACTION_COORDINATOR, begin, 4)
    requests = list(_transaction_requests("c-tx", began.producer_id, began.producer_epoch + 5))
    for request, version in requests:
        talk.ask_each(request, version)
    talk.stop(TRANSACTION_COORDINATOR)
    until_coordinators(talk, GROUP_COORDINATOR, 1)
    for request, version in requests:
        talk.ask_each(request, version)
    talk.start(TRANSACTION_COORDINATOR)
    for request, version in requests:
        talk.ask(TRANSACTION_COORDINATOR, request, version)
    talk.ask(1, begin, 4)


CONVERSATIONS: Final[dict[str, Callable[[Conversation], None]]] = {
    "groups-elsewhere": _groups,
    "transactions-elsewhere": _transactions,
}
