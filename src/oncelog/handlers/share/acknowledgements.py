"""Acknowledgements in ShareFetch and ShareAcknowledge requests: checked, handed to the share partitions, and answered.

A partition with a malformed batch is refused as a whole, as in Apache Kafka; other partitions of the request are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId, Offset, TopicId, TopicName, TopicPartition
from oncelog.core.share.model import Acknowledgement, AcknowledgeType, Refusal
from oncelog.core.share.sessions import PartitionKey
from oncelog.core.share_state.model import ShareKey
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.shares import PendingAcknowledgement, Shares
from oncelog.handlers.broker.waits import NextSlice, UntilAcknowledged

if TYPE_CHECKING:
    from oncelog.handlers.broker.context import Context
    from oncelog.handlers.broker.waits import Steps

PARTITIONS_PER_SLICE: Final = 50
"""Share partitions that are read, or whose state is written, before other connections have their turn: each takes up to
0.2 ms."""
_RENEW_SINCE: Final = 2
Refusals = Mapping[PartitionKey, Refusal | None]
"""Partitions with the reason why their acknowledgements failed, or None: they are durable."""


class Batch(Protocol):
    """An acknowledged range of a request; ``acknowledge_types`` has one entry for all of it, or one an offset."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class Partition(Protocol):
    partition_index: int

    @property
    def acknowledgement_batches(self) -> Sequence[Batch]: ...


class Topic(Protocol):
    topic_id: bytes

    @property
    def partitions(self) -> Sequence[Partition]: ...


class TopicRights:
    """The topics that the requester may read, asked once each."""

    __slots__ = ("_allowed", "_context")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._allowed: dict[TopicName, bool] = {}

    def allow(self, topic: TopicName) -> bool:
        allowed = self._allowed.get(topic)
        if allowed is None:
            allowed = self._allowed[topic] = self._context.allows_topic(Operation.READ, topic)
        return allowed


class Acknowledger(NamedTuple):
    """A member that acknowledges with one request."""

    context: Context
    shares: Shares
    rights: TopicRights
    group_id: GroupId
    member_id: MemberId
    renews: bool
    """The request says that it renews locks: only then it may."""

    def acknowledge(self, topics: Iterable[Topic]) -> Steps[dict[PartitionKey, PendingAcknowledgement]]:
        """Hand the acknowledgements of a request to their share partitions."""
        pending: dict[PartitionKey, PendingAcknowledgement] = {}
        without_batches: list[PartitionKey] = []
        is_anything_acknowledged = False
        for count, (key, batches) in enumerate(_by_partition(topics).items(), 1):
            if not count % PARTITIONS_PER_SLICE:
                yield NextSlice()
            name = self.context.cluster.image.topic_names.get(key[0])
            error_code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else self._error_of(name, key[1], batches)
            if error_code != ErrorCode.NONE:
                pending[key] = _settled(error_code)
            elif batches:
                pending[key] = self._acknowledge_one(key, batches)
                is_anything_acknowledged = True
            else:
                without_batches.append(key)
        # As in Apache Kafka, a partition without acknowledgements is answered only beside one that has some.
        if is_anything_acknowledged:
            pending.update((key, _settled()) for key in without_batches)
        return pending

    def _error_of(self, name: TopicName, index: int, batches: Sequence[Batch]) -> ErrorCode:
        may_renew = self.context.version >= _RENEW_SINCE
        if not _are_valid(batches, may_renew=may_renew, renews=self.renews):
            return ErrorCode.INVALID_REQUEST
        if not self.rights.allow(name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        # Checked after the right: a requester without it does not learn whether the partition exists.
        if not self.context.cluster.image.has_partition(TopicPartition(name, index)):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def _acknowledge_one(self, key: PartitionKey, batches: Sequence[Batch]) -> PendingAcknowledgement:
        acknowledgements = [
            Acknowledgement(Offset(batch.first_offset), Offset(batch.last_offset), batch.acknowledge_types)
            for batch in batches
        ]
        return self.shares.acknowledge(ShareKey(self.group_id, *key), self.member_id, acknowledgements)


def _by_partition(topics: Iterable[Topic]) -> dict[PartitionKey, list[Batch]]:
    """The batches of each partition, which a request may name several times: it has one outcome."""
    gathered: dict[PartitionKey, list[Batch]] = {}
    for topic in topics:
        for partition in topic.partitions:
            batches = gathered.setdefault((TopicId(topic.topic_id), partition.partition_index), [])
            batches.extend(partition.acknowledgement_batches)
    return gathered


def until_durable(pending: Mapping[PartitionKey, PendingAcknowledgement]) -> Steps[Refusals]:
    """Wait until the acknowledgements are durable, or refused."""
    if not all(acknowledgement.is_settled for acknowledgement in pending.values()):
        yield UntilAcknowledged(list(pending.values()))
    return {key: acknowledgement.refusal for key, acknowledgement in pending.items()}


def _settled(error_code: ErrorCode = ErrorCode.NONE) -> PendingAcknowledgement:
    pending = PendingAcknowledgement()
    pending.settle(None if error_code == ErrorCode.NONE else Refusal(error_code, ""))
    return pending


def _are_valid(batches: Sequence[Batch], *, may_renew: bool, renews: bool) -> bool:
    last_type = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
    previous_end = -1
    for batch in batches:
        types = batch.acknowledge_types
        if batch.first_offset > batch.last_offset or batch.first_offset < previous_end:
            return False
        if not types or (len(types) > 1 and batch.last_offset - batch.first_offset != len(types) - 1):
            return False
        if min(types) < AcknowledgeType.GAP or max(types) > last_type:
            return False
        if not renews and AcknowledgeType.RENEW in types:
            return False
        previous_end = batch.last_offset
    return True
