"""Decisions about offsets: commit, fetch, delete, expiry. They change no offset; applying their records does.

Members of a consumer group are checked by their epochs (``consumer.offset_checks``, KIP-848), those of a classic group
by its generation. Only in a classic group a commit counts as a heartbeat. docs/internals/groups.md has the rules of
expiry (KIP-211).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, GroupId, MemberId, Offset, ProducerId, TopicId, TopicName, TopicPartition
from oncelog.core.groups.any_group import AnyGroup
from oncelog.core.groups.classic.group import ASSIGNED_STATES, ClassicGroup
from oncelog.core.groups.classic.persistence import group_tombstone
from oncelog.core.groups.classic.rebalance import Rebalance
from oncelog.core.groups.classic.states import GroupState
from oncelog.core.groups.consumer import records as consumer_records
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.consumer.offset_checks import check_commit, check_fetch
from oncelog.core.groups.model import (
    CONSUMER_PROTOCOL,
    UNKNOWN_MEMBER,
    CommitReply,
    CommitRequest,
    CommittedOffset,
    FetchedOffset,
    GroupDecision,
    PartitionCommit,
    PendingOffsets,
    Record,
    TransactionalCommitRequest,
)
from oncelog.core.groups.modern.group import Refused
from oncelog.core.groups.offset_records import offset_record, offset_tombstone
from oncelog.core.groups.offsets import OffsetStore
from oncelog.core.groups.settings import GroupSettings
from oncelog.core.groups.share import records as share_records
from oncelog.core.groups.share.group import ShareGroup

BYTES_PER_PART: Final = 256 * 1024
"""Bytes of tombstones for deleted partitions in one batch: a log takes 1 MiB by default."""
TOMBSTONE_BYTES: Final = 16
"""A record without its key and value."""
NOT_COMMITTED = CommittedOffset(Offset(-1))
_BUSY_STATES = (GroupState.PREPARING_REBALANCE, *ASSIGNED_STATES)


class Commits:
    def __init__(
        self,
        partition: int,
        groups: Mapping[GroupId, AnyGroup],
        offsets: OffsetStore,
        settings: GroupSettings,
        rebalance: Rebalance,
    ) -> None:
        self._partition = partition
        self._groups = groups
        self._offsets = offsets
        self._settings = settings
        self._rebalance = rebalance

    def commit(self, request: CommitRequest, now_ms: int) -> GroupDecision:
        """Replies CommitReply; the records of all partitions are one batch."""
        group = self._groups.get(request.group_id)
        if group is None:
            refusal = _refusal_without_group(request)
        elif isinstance(group, ConsumerGroup):
            refusal = self._epoch_refusal(group, request)
        elif isinstance(group, ShareGroup):
            # Its offsets are the share coordinator's.
            refusal = ErrorCode.GROUP_ID_NOT_FOUND
        else:
            refusal = _commit_refusal(group, request)
        if refusal is not ErrorCode.NONE:
            return GroupDecision(reply=CommitReply(refusal))
        if isinstance(group, ClassicGroup) and (member := group.members.get(request.member_id)) is not None:
            # A commit counts as a heartbeat.
            self._rebalance.restart_session(group, member, now_ms)
        return self._write(request.group_id, request.partitions, now_ms, request.retention_ms)

    def commit_transactional(self, request: TransactionalCommitRequest, now_ms: int) -> GroupDecision:
        """TxnOffsetCommit (KIP-98, KIP-447), fenced like a commit, in any group state. Replies CommitReply; the records
        are a batch of the transaction."""
        group = self._groups.get(request.group_id)
        if group is None:
            refusal = _refusal_without_group(request)
        elif isinstance(group, ConsumerGroup):
            refusal = self._epoch_refusal(group, request)
        elif isinstance(group, ShareGroup):
            refusal = ErrorCode.GROUP_ID_NOT_FOUND
        else:
            # The member's session is not extended: the request comes from a producer and proves nothing about the
            # consumer.
            refusal = _transactional_refusal(group, request)
        if refusal is not ErrorCode.NONE:
            return GroupDecision(reply=CommitReply(refusal))
        out = self._write(request.group_id, request.partitions, now_ms)
        out.producer = request.producer
        return out

    def _epoch_refusal(self, group: ConsumerGroup, request: CommitRequest | TransactionalCommitRequest) -> ErrorCode:
        """The error for all partitions, or NONE."""
        is_transactional = isinstance(request, TransactionalCommitRequest)
        try:
            check = check_commit(
                group,
                request.member_id,
                request.group_instance_id,
                request.generation,
                knows_epochs=request.knows_epochs,
                is_transactional=is_transactional,
            )
        except Refused as refused:
            refusal = refused.code
        else:
            # As in Apache Kafka a single stale partition refuses the request; partitions with metadata that is too
            # large are not checked.
            errors = (
                check(part.topic, part.topic_id, part.partition) for part in request.partitions if self._fits(part)
            )
            refusal = next((error for error in errors if error is not ErrorCode.NONE), ErrorCode.NONE)
        if is_transactional and refusal is ErrorCode.STALE_MEMBER_EPOCH and not request.knows_epochs:
            return ErrorCode.ILLEGAL_GENERATION
        return refusal

    def _fits(self, part: PartitionCommit) -> bool:
        # Apache Kafka counts UTF-16 code units here, whatever the key's name says.
        units = len((part.metadata or "").encode("utf-16-le", "surrogatepass")) // 2
        return units <= self._settings.offset_metadata_max_length

    def _write(
        self, group_id: GroupId, partitions: Iterable[PartitionCommit], now_ms: int, retention_ms: int = -1
    ) -> GroupDecision:
        out, errors = GroupDecision(), []
        for part in partitions:
            if not self._fits(part):
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            errors.append(ErrorCode.NONE)
            out.records.append(_commit_record(group_id, part, now_ms, retention_ms))
        out.reply = CommitReply(ErrorCode.NONE, errors)
        return out

    def fetch_refusal(self, group_id: GroupId, member_id: MemberId | None, epoch: int) -> ErrorCode:
        """NONE if the group's offsets may be fetched by this member, or by an administrator without id and epoch."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            try:
                check_fetch(group, member_id, epoch)
            except Refused as refused:
                return refused.code
        return ErrorCode.NONE

    def fetch(
        self,
        group_id: GroupId,
        partitions: Sequence[tuple[TopicName, TopicId, int]],
        *,
        require_stable: bool,
        undecided: Collection[ProducerId] = (),
    ) -> GroupDecision:
        """OffsetFetch of these partitions. Replies a list of FetchedOffset, or PendingOffsets (O8)."""
        # With require_stable pending offsets are reported as UNSTABLE_OFFSET_COMMIT instead.
        if not require_stable and (senders := self._offsets.senders(group_id)):
            named = ((topic, partition) for topic, _, partition in partitions)
            if passed_over := _senders_of(named, senders, undecided):
                return GroupDecision(reply=PendingOffsets(self._partition, passed_over))
        offsets = [
            self._fetched(group_id, topic, topic_id, partition, require_stable=require_stable)
            for topic, topic_id, partition in partitions
        ]
        return GroupDecision(reply=offsets, waits_for_pending=True)

    def fetch_all(
        self, group_id: GroupId, *, require_stable: bool, undecided: Collection[ProducerId] = ()
    ) -> GroupDecision:
        """OffsetFetch of all committed offsets of the group. Replies a list of FetchedOffset by topic, or
        PendingOffsets (O8).
        """
        if senders := self._offsets.senders(group_id):
            # Even with require_stable: the reply would omit partitions without a committed offset.
            committed = self._offsets.committed.of_group(group_id) if require_stable else {}
            not_included = (
                (topic, index) for topic in senders for index in senders[topic] if index not in committed.get(topic, ())
            )
            if passed_over := _senders_of(not_included, senders, undecided):
                return GroupDecision(reply=PendingOffsets(self._partition, passed_over))
        offsets = [
            self._fetched(group_id, topic, NO_TOPIC_ID, partition, require_stable=require_stable)
            for topic, offsets in self._offsets.committed.of_group(group_id).items()
            for partition in offsets
        ]
        return GroupDecision(reply=offsets, waits_for_pending=True)

    def _fetched(
        self, group_id: GroupId, topic: TopicName, topic_id: TopicId, partition: int, *, require_stable: bool
    ) -> FetchedOffset:
        if require_stable and self._offsets.has_pending(group_id, topic, partition):
            return FetchedOffset(topic, partition, ErrorCode.UNSTABLE_OFFSET_COMMIT, NOT_COMMITTED)
        committed = self._offsets.committed.get(group_id, topic, partition)
        if committed is None or _other_topic(topic_id, committed.topic_id):
            committed = NOT_COMMITTED
        return FetchedOffset(topic, partition, ErrorCode.NONE, committed)

    def delete(self, group_id: GroupId, partitions: Sequence[TopicPartition]) -> GroupDecision:
        """OffsetDelete (KIP-496). Replies an ErrorCode for all, or a list of ErrorCodes in request order."""
        group = self._groups.get(group_id)
        if group is None or isinstance(group, ShareGroup):
            return GroupDecision(reply=ErrorCode.GROUP_ID_NOT_FOUND)
        # Only the "consumer" protocol type tells which topics are in use.
        if isinstance(group, ClassicGroup) and group.state in _BUSY_STATES and group.protocol_type != CONSUMER_PROTOCOL:
            return GroupDecision(reply=ErrorCode.NON_EMPTY_GROUP)
        out, errors = GroupDecision(), []
        is_subscribed = _subscription(group)
        for topic, partition in partitions:
            subscribed = is_subscribed(topic)
            errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE)
            if not subscribed and self._has_offset(group_id, topic, partition):
                out.records.append(offset_tombstone(group_id, topic, partition))
        out.reply = errors
        return out

    def _has_offset(self, group_id: GroupId, topic: TopicName, partition: int) -> bool:
        committed = self._offsets.committed.get(group_id, topic, partition)
        return committed is not None or self._offsets.has_pending(group_id, topic, partition)

    def delete_group(self, group_id: GroupId) -> GroupDecision:
        """DeleteGroups (KIP-229). Replies an ErrorCode."""
        group = self._groups.get(group_id)
        if group is None:
            return GroupDecision(reply=ErrorCode.GROUP_ID_NOT_FOUND)
        has_members = group.state in _BUSY_STATES if isinstance(group, ClassicGroup) else bool(group.members)
        if has_members:
            return GroupDecision(reply=ErrorCode.NON_EMPTY_GROUP)
        records = [offset_tombstone(group_id, topic, part) for topic, part in self._offsets.partitions_of(group_id)]
        return GroupDecision([*records, *_tombstones(group)], ErrorCode.NONE)

    def topics_deleted(self, partitions: Iterable[TopicPartition], sequence: int) -> list[Record]:
        """Tombstones for offsets of partitions that were deleted at ``sequence``: a part of them if they are many."""
        gone: dict[TopicName, set[int]] = {}
        for topic, partition in partitions:
            gone.setdefault(topic, set()).add(partition)
        records: list[Record] = []
        size = 0
        for group_id in self._offsets.group_ids(gone):
            for topic, partition in self._offsets.partitions_of(group_id, gone):
                if partition in gone[topic] and self._offsets.newest_sequence(group_id, topic, partition) < sequence:
                    records.append(offset_tombstone(group_id, topic, partition))
                    size += TOMBSTONE_BYTES + len(records[-1][0])
                    if size > BYTES_PER_PART:
                        return records
        return records

    def expire(self, group: AnyGroup, now_ms: int) -> list[Record]:
        """Tombstones for a group's expired offsets, and for the group if nothing is left of it; none for a share group,
        which only an administrator deletes.
        """
        if isinstance(group, ShareGroup):
            return []
        records, all_expired = [], True
        is_subscribed = _subscription(group)
        ages = _aging(group)
        for topic, partitions in self._offsets.committed.of_group(group.group_id).items():
            for partition, committed in partitions.items():
                if ages and not is_subscribed(topic) and self._is_expired(group, topic, partition, committed, now_ms):
                    records.append(offset_tombstone(group.group_id, topic, partition))
                else:
                    all_expired = False
        if isinstance(group, ClassicGroup):
            unused = group.state is GroupState.EMPTY and not group.pending_joins
        else:
            unused = not group.members
        # A pending transaction may still commit offsets of the group.
        if all_expired and unused and not self._offsets.has_open_transactions(group.group_id):
            records += _tombstones(group)
        return records

    def _is_expired(
        self,
        group: ClassicGroup | ConsumerGroup,
        topic: TopicName,
        partition: int,
        committed: CommittedOffset,
        now_ms: int,
    ) -> bool:
        if self._offsets.has_pending(group.group_id, topic, partition):
            return False
        base_ms = committed.commit_timestamp_ms
        if isinstance(group, ClassicGroup) and group.protocol_type is not None and group.state is GroupState.EMPTY:
            base_ms = group.state_timestamp_ms if group.state_timestamp_ms >= 0 else base_ms
        # An old client's own retention (OffsetCommit 2 to 4) overrides the broker's.
        if committed.expire_timestamp_ms >= 0:
            return now_ms >= committed.expire_timestamp_ms
        return now_ms - base_ms >= self._settings.offsets_retention_ms


def _refusal_without_group(request: CommitRequest | TransactionalCommitRequest) -> ErrorCode:
    # A commit without a generation needs no group: it comes from a simple consumer.
    if request.generation < 0:
        return ErrorCode.NONE
    return ErrorCode.GROUP_ID_NOT_FOUND if request.knows_epochs else ErrorCode.ILLEGAL_GENERATION


def _subscription(group: ClassicGroup | ConsumerGroup) -> Callable[[TopicName], bool]:
    """Tells if any member subscribes to a topic."""
    return group.is_subscribed if isinstance(group, ClassicGroup) else group.subscribed_topics().__contains__


def _aging(group: ClassicGroup | ConsumerGroup) -> bool:
    """True if the group's offsets may expire now."""
    if not isinstance(group, ClassicGroup) or group.protocol_type is None or group.state is GroupState.EMPTY:
        return True
    return group.state is GroupState.STABLE and group.subscribed_topics is not None


def _tombstones(group: AnyGroup) -> list[Record]:
    """The records that remove a group without members."""
    if isinstance(group, ClassicGroup):
        return [group_tombstone(group.group_id)]
    if isinstance(group, ShareGroup):
        return [share_records.encode(record) for record in share_records.group_tombstones(group)]
    return [consumer_records.encode(record) for record in consumer_records.group_tombstones(group)]


def _commit_refusal(group: ClassicGroup, request: CommitRequest) -> ErrorCode:
    if request.generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if not _is_identified(request):
        return ErrorCode.UNKNOWN_MEMBER_ID
    refusal = _fenced(group, request)
    if refusal is ErrorCode.NONE and group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return refusal


def _transactional_refusal(group: ClassicGroup, request: TransactionalCommitRequest) -> ErrorCode:
    # Clients older than KIP-447 (version 2) name no member: only their transactional id fences them.
    if not _is_identified(request) or (request.generation < 0 and group.state is GroupState.EMPTY):
        return ErrorCode.NONE
    return _fenced(group, request)


def _is_identified(request: CommitRequest | TransactionalCommitRequest) -> bool:
    return request.generation >= 0 or request.member_id != UNKNOWN_MEMBER or request.group_instance_id is not None


def _fenced(group: ClassicGroup, request: CommitRequest | TransactionalCommitRequest) -> ErrorCode:
    refusal = group.refusal_for(request.member_id, request.group_instance_id)
    if refusal is ErrorCode.NONE and request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return refusal


def _commit_record(group_id: GroupId, part: PartitionCommit, now_ms: int, retention_ms: int) -> Record:
    committed = CommittedOffset(
        part.offset,
        part.leader_epoch,
        part.metadata or "",
        now_ms,
        -1 if retention_ms < 0 else now_ms + retention_ms,
        part.topic_id,
    )
    return offset_record(group_id, part.topic, part.partition, committed)


def _senders_of(
    partitions: Iterable[tuple[TopicName, int]],
    senders: Mapping[TopicName, Mapping[int, Collection[ProducerId]]],
    undecided: Collection[ProducerId],
) -> frozenset[ProducerId]:
    """The producers with pending offsets of ``partitions``, except those known to be ``undecided``."""
    no_producers: Collection[ProducerId] = ()
    return frozenset(
        producer_id
        for topic, partition in partitions
        for producer_id in senders.get(topic, {}).get(partition, no_producers)
        if producer_id not in undecided
    )


def _other_topic(requested: TopicId, stored: TopicId) -> bool:
    """True if the offset was committed for an earlier topic of the same name."""
    return NO_TOPIC_ID not in (requested, stored) and requested != stored
