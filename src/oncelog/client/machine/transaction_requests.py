"""A transactional producer's requests to its coordinators, and the decisive error code of each response.

A request includes its permitted versions, because they differ in meaning: EndTxn 5 raises the epoch, TxnOffsetCommit 5
adds its group itself (KIP-890), InitProducerId 6 knows prepared transactions (KIP-939). AddPartitionsToTxn ends at
version 3; later ones are for brokers. No state is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition, by_topic
from oncelog.base.units import INT32_MAX
from oncelog.client.errors import UnsupportedRequest
from oncelog.client.machine.offsets import Committed, GroupMetadata
from oncelog.client.machine.transaction_states import Step, Verdict, verdict
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.client.machine.versions import Versions
from oncelog.wire.message import Request
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

TWO_PHASE_VERSION: Final = 6
"""InitProducerId from here on has Enable2Pc and KeepPreparedTxn."""
BUMP_VERSION: Final = 3
"""InitProducerId from here on raises the epoch of an id that is sent along (KIP-360)."""
_VERSION_2_FROM: Final = 5
"""TxnOffsetCommit and EndTxn from here on are transaction version 2, and below it version 1."""


class Identity(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int


class CoordinatorRequest(NamedTuple):
    """A request to the transaction's coordinator, or to that of ``group``."""

    message: Request[Any]
    at_least: int
    at_most: int
    group: str | None

    def version(self, versions: Versions) -> int:
        """The version to send. Raises UnsupportedRequest if the broker has none high enough."""
        chosen = versions.choose(self.message, self.at_most)
        if chosen < self.at_least:
            name = type(self.message).__name__
            raise UnsupportedRequest(f"{name}: the broker has version {chosen}, {self.at_least} is needed")
        return chosen


def init_request(settings: TransactionSettings, present: Identity | None, keep_prepared: bool) -> CoordinatorRequest:
    """InitProducerId, for an id or a higher epoch of the ``present`` one."""
    two_phase = settings.two_phase
    message = InitProducerIdRequest(
        transactional_id=settings.transactional_id,
        transaction_timeout_ms=INT32_MAX if two_phase else settings.timeout_ms,
        producer_id=-1 if present is None else present.producer_id,
        producer_epoch=-1 if present is None else present.producer_epoch,
        enable2_pc=two_phase,
        keep_prepared_txn=keep_prepared,
    )
    # Only version 6 can express it.
    if two_phase or keep_prepared:
        return CoordinatorRequest(message, TWO_PHASE_VERSION, TWO_PHASE_VERSION, None)
    return CoordinatorRequest(message, 0 if present is None else BUMP_VERSION, TWO_PHASE_VERSION - 1, None)


def add_partitions_request(identity: Identity, partitions: tuple[TopicPartition, ...]) -> CoordinatorRequest:
    """AddPartitionsToTxn, before a batch is sent to the partitions."""
    message = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=identity.transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in by_topic(partitions).items()
        ],
    )
    return CoordinatorRequest(message, 0, 3, None)


def add_offsets_request(identity: Identity, group: str) -> CoordinatorRequest:
    """AddOffsetsToTxn, before offsets of the group are sent."""
    message = AddOffsetsToTxnRequest(
        transactional_id=identity.transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        group_id=group,
    )
    return CoordinatorRequest(message, 0, 4, None)


def commit_offsets_request(
    identity: Identity, offsets: Mapping[TopicPartition, Committed], group: GroupMetadata, version: int
) -> CoordinatorRequest:
    """TxnOffsetCommit by transaction ``version``: a group's offsets, pending until the transaction ends."""
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for partition, offset in offsets.items():
        topics.setdefault(partition.topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    message = TxnOffsetCommitRequest(
        transactional_id=identity.transactional_id,
        group_id=group.group,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        generation_id=group.generation,
        member_id=group.member_id,
        group_instance_id=group.instance_id,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=parts) for topic, parts in topics.items()],
    )
    if version >= 2:
        return CoordinatorRequest(message, _VERSION_2_FROM, _VERSION_2_FROM, group.group)
    # Fields of KIP-447 need version 3.
    fences = group.generation >= 0 or bool(group.member_id) or group.instance_id is not None
    return CoordinatorRequest(message, 3 if fences else 0, _VERSION_2_FROM - 1, group.group)


def end_request(identity: Identity, committed: bool, version: int) -> CoordinatorRequest:
    """EndTxn, to commit or abort; by transaction ``version``."""
    message = EndTxnRequest(
        transactional_id=identity.transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        committed=committed,
    )
    if version >= 2:
        return CoordinatorRequest(message, _VERSION_2_FROM, _VERSION_2_FROM, None)
    return CoordinatorRequest(message, 0, _VERSION_2_FROM - 1, None)


def _codes(response: Any) -> list[int]:
    if isinstance(response, AddPartitionsToTxnResponse):
        topics = response.results_by_topic_v3_and_below
        return [result.partition_error_code for topic in topics for result in topic.results_by_partition]
    if isinstance(response, TxnOffsetCommitResponse):
        return [partition.error_code for topic in response.topics for partition in topic.partitions]
    return [response.error_code]


def refused_partitions(response: AddPartitionsToTxnResponse) -> dict[TopicPartition, int]:
    """The partitions that were refused individually, with their error codes."""
    passing = (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)
    return {
        TopicPartition(TopicName(topic.name), partition.partition_index): partition.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
        if partition.partition_error_code not in passing
    }


def error_of(response: Any) -> int:
    """The decisive error code of a response: final ones before retriable ones, those before NONE."""
    step = Step.COMMIT_OFFSETS if isinstance(response, TxnOffsetCommitResponse) else Step.ADD_PARTITIONS
    order = (Verdict.FATAL, Verdict.ABORT_AND_BUMP, Verdict.ABORT, Verdict.FIND_COORDINATOR, Verdict.RETRY)
    codes = [code for code in _codes(response) if code]
    sentences = [code for code in codes if code != ErrorCode.OPERATION_NOT_ATTEMPTED] or codes
    return min(sentences, key=lambda code: order.index(verdict(step, code)), default=int(ErrorCode.NONE))


def without_errors(response: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
    """The response reduced to the partitions that were accepted."""
    for topic in response.topics:
        topic.partitions = [partition for partition in topic.partitions if not partition.error_code]
    return response
