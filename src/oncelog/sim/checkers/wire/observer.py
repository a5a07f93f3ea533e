"""Checks all traffic of a broker or a cluster: reports each response that contradicts earlier ones.

Report events to it in the order in which the broker received and sent them: :meth:`WireObserver.received` for every
decoded request, :meth:`WireObserver.answered` for every decoded response, :meth:`WireObserver.disconnected` for every
lost connection, and :meth:`WireObserver.restarted` after a kill or stop (:meth:`WireObserver.broker_died` for one of
several brokers). It knows nothing of the broker's internals; it keeps the messages and changes nothing. Records are the
bytes on the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from oncelog.base.ids import TopicId, TopicPartition
from oncelog.sim.checkers.liveness import WaitingRequest
from oncelog.sim.checkers.wire.appends import AcknowledgedBatch, Appends
from oncelog.sim.checkers.wire.commits import Commits
from oncelog.sim.checkers.wire.exchange import ALONE, Exchange, Topics, name_of
from oncelog.sim.checkers.wire.fetched import FetchedLogs
from oncelog.sim.checkers.wire.generations import Generations
from oncelog.sim.checkers.wire.member_answers import MemberAnswers
from oncelog.sim.checkers.wire.outcomes import TRANSACTIONS_V2, Outcomes
from oncelog.sim.checkers.wire.ownership import Ownership
from oncelog.sim.checkers.wire.shares import Shares
from oncelog.sim.checkers.wire.watermarks import ClusterWatermarks, Watermarks
from oncelog.wire.message import Request
from oncelog.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from oncelog.wire.messages.create_topics import CreateTopicsResponse
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from oncelog.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from oncelog.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest
from oncelog.wire.messages.end_txn import EndTxnResponse
from oncelog.wire.messages.fetch import FetchResponse
from oncelog.wire.messages.heartbeat import HeartbeatResponse
from oncelog.wire.messages.init_producer_id import InitProducerIdResponse
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from oncelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from oncelog.wire.messages.list_offsets import ListOffsetsResponse
from oncelog.wire.messages.metadata import MetadataResponse
from oncelog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from oncelog.wire.messages.offset_delete import OffsetDeleteRequest
from oncelog.wire.messages.offset_fetch import OffsetFetchResponse
from oncelog.wire.messages.produce import ProduceRequest, ProduceResponse
from oncelog.wire.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from oncelog.wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from oncelog.wire.messages.sync_group import SyncGroupResponse
from oncelog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest


class WireObserver:
    """Watches requests and responses.

    ``is_cluster``: several brokers lead one after another; requests of followers are left out. ``violations``: rule
    (number and name) → its instances, each with its time in ms.
    """

    def __init__(self, *, is_cluster: bool = False) -> None:
        self.violations: dict[str, list[str]] = {}
        self.is_cluster = is_cluster
        # Called with each offset below which a response declares the records deleted.
        self.on_deleted: Callable[[TopicPartition, TopicId, int], None] = lambda partition, topic_id, before: None
        # Times of the calls of `restarted`.
        self.restarted_at_ms: list[int] = []
        self._now_ms = self._index = 0
        self._open: dict[Hashable, dict[int, Exchange]] = {}
        topics = self._topics = Topics()
        self._watermarks: Watermarks = (ClusterWatermarks if is_cluster else Watermarks)(topics, self._report)
        self._appends = Appends(topics, self._report, self._watermarks, only_certain=is_cluster)
        self._outcomes = Outcomes(self._report)
        self._logs = FetchedLogs(topics, self._report, self._appends, self._outcomes)
        self._generations = Generations(self._report, is_cluster=is_cluster)
        self._ownership = Ownership(topics, self._report)
        self._member_answers = MemberAnswers(topics, self._report, is_cluster=is_cluster)
        self.shares = Shares(topics, self._report, self._appends.times, is_cluster=is_cluster)
        self.shares.clock = lambda broker_id: self._now_ms
        self._generations.on_new_beginning = self._began_anew
        self._commits = Commits(topics, self._report, is_cluster=is_cluster)
        self._is_read: dict[type, bool] = {}
        self._requests: dict[type, Callable[[Exchange], None]] = {
            OffsetCommitRequest: lambda exchange: self._commits.commit_requested(exchange, transactional=False),
            TxnOffsetCommitRequest: lambda exchange: self._commits.commit_requested(exchange, transactional=True),
            ProduceRequest: self._appends.times.requested,
            DeleteTopicsRequest: self._deleting_topics,
            DeleteRecordsRequest: self._deleting_records,
            DeleteGroupsRequest: self._deleting_groups,
            ConsumerGroupHeartbeatRequest: self._heartbeat_requested,
            JoinGroupRequest: self._join_requested,
            LeaveGroupRequest: self._ownership.leave_requested,
            ShareFetchRequest: self.shares.fetch_requested,
            ShareAcknowledgeRequest: self.shares.acknowledge_requested,
            AlterShareGroupOffsetsRequest: self.shares.changes.requested,
            DeleteShareGroupOffsetsRequest: self.shares.changes.requested,
            OffsetDeleteRequest: lambda exchange: self._commits.forget(exchange.request.group_id),
        }
        self._responses: dict[type, Callable[[Exchange, Any, int], None]] = {
            ProduceResponse: self._appends.produced,
            FetchResponse: self._fetched,
            ListOffsetsResponse: self._watermarks.listed,
            MetadataResponse: self._topics_named,
            DeleteRecordsResponse: self._deleted_records,
            CreateTopicsResponse: self._topics_named,
            InitProducerIdResponse: self._outcomes.initialised,
            EndTxnResponse: self._ended,
            JoinGroupResponse: self._joined,
            SyncGroupResponse: self._synced,
            HeartbeatResponse: self._classic_heartbeat_answered,
            LeaveGroupResponse: self._ownership.left,
            ConsumerGroupHeartbeatResponse: self._heartbeat_answered,
            OffsetCommitResponse: self._committed,
            ShareFetchResponse: self.shares.fetched,
            ShareAcknowledgeResponse: self.shares.acknowledged,
            AlterShareGroupOffsetsResponse: self.shares.changes.answered,
            DeleteShareGroupOffsetsResponse: self.shares.changes.answered,
            DeleteGroupsResponse: self.shares.changes.answered,
            OffsetFetchResponse: lambda exchange, response, index: self._commits.fetched(exchange, response),
        }

    def reads(self, request_class: type[Request[Any]]) -> bool:
        """True if a rule reads such requests or their responses.

        Of all others, ``received`` needs only the class.
        """
        is_read = self._is_read.get(request_class)
        if is_read is None:
            is_read = request_class in self._requests or request_class.response_class() in self._responses
            self._is_read[request_class] = is_read
        return is_read

    @property
    def watermarks(self) -> Watermarks:
        return self._watermarks

    def received(
        self,
        connection: Hashable,
        correlation_id: int,
        version: int,
        request: object,
        at_ms: int,
        broker_id: int = ALONE,
    ) -> None:
        """A whole request arrived at a broker; for some its class is enough, see :meth:`reads`. ``version``: of the
        API.
        """
        self._index += 1
        self._now_ms = at_ms
        exchange = Exchange(self._index, version, request, at_ms, broker_id, connection)
        if not (type(request) is ProduceRequest and request.acks == 0):
            self._open.setdefault(connection, {})[correlation_id] = exchange
        handler = self._requests.get(type(request))
        if handler is not None:
            handler(exchange)

    def answered(self, connection: Hashable, correlation_id: int, response: object, at_ms: int) -> None:
        """The broker sent a response, which may be lost on the way. Responses to unknown requests are ignored."""
        self._index += 1
        self._now_ms = at_ms
        exchange = self._open.get(connection, {}).pop(correlation_id, None)
        handler = self._responses.get(type(response))
        if exchange is not None and handler is not None:
            handler(exchange, response, self._index)

    def disconnected(self, connection: Hashable) -> None:
        """The connection is gone. Its requests may still take effect."""
        self.shares.lost(self._open.pop(connection, {}).values(), self._index)
        self.shares.disconnected(connection)

    def broker_died(self, at_ms: int, broker_id: int, connections: Iterable[Hashable]) -> None:
        """One of several brokers stopped or was killed, with its connections; others may lead now."""
        self._index += 1
        self._now_ms = at_ms
        for connection in connections:
            self.shares.lost(self._open.pop(connection, {}).values(), self._index)
        self.shares.broker_died(broker_id)
        self._commits.restarted(self._index, broker_id)
        self._generations.broker_died(broker_id)
        self._ownership.restarted(at_ms)

    def restarted(self, at_ms: int, *, keeps_all: bool = True, power_lost: bool = False) -> None:
        """The broker stopped or was killed, with all its connections.

        ``keeps_all``: records that were acknowledged with acks=all, or readable, survive. False after a power cut with
        ``log.sync.policy=none``.
        """
        self._index += 1
        self._now_ms = at_ms
        self.restarted_at_ms.append(at_ms)
        for exchanges in self._open.values():
            self.shares.lost(exchanges.values(), self._index)
        self._open.clear()
        self.shares.broker_died(ALONE)
        self._watermarks.restarted(power_lost=power_lost)
        self._appends.restarted(keeps_all=keeps_all)
        self._logs.restarted(keeps_all=keeps_all)
        self._generations.restarted()
        self._ownership.restarted(at_ms, keeps_all=keeps_all)
        self._member_answers.restarted(keeps_all=keeps_all)
        self._commits.restarted(self._index)

    def acknowledged_batches(self) -> list[AcknowledgedBatch]:
        return self._appends.durable()

    def waiting(self, before_ms: int) -> list[WaitingRequest]:
        """Requests from before ``before_ms`` without a response, on connections that are still open."""
        return [
            WaitingRequest(str(connection), name_of(exchange.request), exchange.at_ms)
            for connection, exchanges in self._open.items()
            for exchange in exchanges.values()
            if exchange.at_ms < before_ms
        ]

    def _report(self, rule: str, instance: str) -> None:
        self.violations.setdefault(rule, []).append(f"{self._now_ms}: {instance}")

    def _fetched(self, exchange: Exchange, response: FetchResponse, index: int) -> None:
        if not response.error_code:
            self._watermarks.fetched(exchange, response, index)
            self._logs.fetched(exchange, response)

    def _ended(self, exchange: Exchange, response: EndTxnResponse, index: int) -> None:
        self._outcomes.ended(exchange, response, index)
        self._commits.ended(exchange, response.error_code, index, bumps=exchange.version >= TRANSACTIONS_V2)

    def _join_requested(self, exchange: Exchange) -> None:
        self._generations.join_requested(exchange)
        self._ownership.join_requested(exchange)

    def _joined(self, exchange: Exchange, response: JoinGroupResponse, index: int) -> None:
        self._generations.joined(exchange, response, index)
        self._ownership.joined(exchange, response, index)
        self._member_answers.joined(exchange, response)

    def _synced(self, exchange: Exchange, response: SyncGroupResponse, index: int) -> None:
        self._generations.synced(exchange, response, index)
        self._ownership.synced(exchange, response, index)
        self._member_answers.synced(exchange, response)

    def _classic_heartbeat_answered(self, exchange: Exchange, response: HeartbeatResponse, index: int) -> None:
        self._ownership.classic_heartbeat_answered(exchange, response, index)
        self._member_answers.classic_heartbeat_answered(exchange, response)

    def _committed(self, exchange: Exchange, response: OffsetCommitResponse, index: int) -> None:
        self._commits.committed(exchange, response, index)
        self._member_answers.committed(exchange, response)

    def _heartbeat_requested(self, exchange: Exchange) -> None:
        self._ownership.heartbeat_requested(exchange)
        self._member_answers.heartbeat_requested(exchange)

    def _heartbeat_answered(self, exchange: Exchange, response: ConsumerGroupHeartbeatResponse, index: int) -> None:
        self._generations.heartbeat_answered(exchange, response, index)
        self._ownership.heartbeat_answered(exchange, response, index)
        self._member_answers.heartbeat_answered(exchange, response, index)

    def _began_anew(self, group_id: str) -> None:
        self._ownership.began_anew(group_id)
        self._member_answers.forget_group(group_id)

    def _topics_named(self, exchange: Exchange, response: MetadataResponse | CreateTopicsResponse, index: int) -> None:
        for topic in response.topics:
            if not topic.error_code:
                self._topics.add_name(topic.name, topic.topic_id)

    def _deleting_topics(self, exchange: Exchange) -> None:
        for topic in exchange.request.topics:
            self._topics.deletion_requested(topic.name, topic.topic_id)
        for name in exchange.request.topic_names:
            self._topics.deletion_requested(name, bytes(16))

    def _deleting_records(self, exchange: Exchange) -> None:
        for topic in exchange.request.topics:
            for partition in topic.partitions:
                key = self._topics.key(topic.name, bytes(16), partition.partition_index)
                if key is not None:
                    self._appends.trim_requested(key, partition.offset)

    def _deleted_records(self, _asked: Exchange, response: DeleteRecordsResponse, _index: int) -> None:
        for topic in response.topics:
            for partition in topic.partitions:
                key = self._topics.key(topic.name, bytes(16), partition.partition_index)
                if key is not None and not partition.error_code:
                    name, topic_id = self._topics.place(key, topic.name)
                    self.on_deleted(TopicPartition(name, key[1]), topic_id, partition.low_watermark)

    def _deleting_groups(self, exchange: Exchange) -> None:
        self.shares.changes.requested(exchange)
        for group in exchange.request.groups_names:
            self._generations.deletion_requested(group)
            self._ownership.deletion_requested(group)
            self._member_answers.forget_group(group)
            self._commits.forget(group)
