"""Offsets of groups of the consumer protocol: who may commit, fetch and delete them, and when they expire."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import (
    GroupId,
    LeaderEpoch,
    MemberId,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicName,
    TopicPartition,
)
from oncelog.base.units import DAY_MS
from oncelog.core.groups.classic.rebalance import Rebalance, Timers
from oncelog.core.groups.commits import Commits
from oncelog.core.groups.consumer import records
from oncelog.core.groups.consumer.group import ConsumerGroup, ResolvedRegex
from oncelog.core.groups.consumer.member import ClassicMetadata, ConsumerMember
from oncelog.core.groups.model import (
    CommitReply,
    CommitRequest,
    CommittedOffset,
    PartitionCommit,
    Producer,
    TransactionalCommitRequest,
)
from oncelog.core.groups.offset_records import offset_tombstone
from oncelog.core.groups.offsets import OffsetStore
from oncelog.core.groups.settings import GroupSettings
from oncelog.records.internal import group_records
from oncelog.records.internal.consumer_group_records import Key, Value

GROUP, MEMBER, CLASSIC = GroupId("g"), MemberId("m"), MemberId("c")
T, T_ID = TopicName("t"), TopicId(b"t" * 16)
WEEK_MS = 7 * DAY_MS


def member(member_id: MemberId, **fields: object) -> ConsumerMember:
    """In epoch 5, with partition 0 since epoch 3, and giving up partition 1, which it has had since epoch 4."""
    return ConsumerMember(
        member_id,
        epoch=5,
        previous_epoch=4,
        topics=frozenset([T]),
        assigned={T_ID: {0: 3}},
        pending_revocation={T_ID: {1: 4}},
        **fields,  # type: ignore[arg-type]  # fields by name
    )


class Offsets:
    """The decisions about the offsets of one group."""

    def __init__(self, *members: ConsumerMember) -> None:
        settings = GroupSettings()
        self.group = ConsumerGroup(GROUP)
        self.store = OffsetStore()
        self.commits = Commits(0, {GROUP: self.group}, self.store, settings, Rebalance(settings, Timers()))
        for item in members:
            for record in (records.subscription(GROUP, item), records.current_assignment(GROUP, item)):
                self.apply(*record)

    def apply(self, key: Key, value: Value | None) -> None:
        self.group.apply(key, value)

    def commit(
        self, epoch: int, member_id: MemberId = MEMBER, *, partitions: tuple[int, ...] = (0,), knows_epochs: bool = True
    ) -> E | list[E]:
        parts = [PartitionCommit(T, index, Offset(7), LeaderEpoch(-1), "", T_ID) for index in partitions]
        request = CommitRequest(GROUP, member_id, epoch, None, parts, knows_epochs=knows_epochs)
        return outcome(self.commits.commit(request, 0).reply)

    def commit_transactional(
        self, epoch: int, member_id: MemberId = MEMBER, *, partition: int = 0, knows_epochs: bool = True
    ) -> E | list[E]:
        parts = [PartitionCommit(T, partition, Offset(7), LeaderEpoch(-1), "", T_ID)]
        producer = Producer(ProducerId(1), ProducerEpoch(0))
        request = TransactionalCommitRequest(GROUP, member_id, epoch, None, parts, producer, knows_epochs)
        return outcome(self.commits.commit_transactional(request, 0).reply)

    def put(self, topic: TopicName, commit_timestamp_ms: int = 0) -> None:
        committed = CommittedOffset(Offset(1), commit_timestamp_ms=commit_timestamp_ms)
        self.store.committed.put(GROUP, topic, 0, committed)


def outcome(reply: object) -> E | list[E]:
    assert isinstance(reply, CommitReply)
    return list(reply.partitions) or reply.error_code


@pytest.fixture
def offsets() -> Offsets:
    return Offsets(member(MEMBER), member(CLASSIC, classic=ClassicMetadata(10_000, ())))


@pytest.mark.parametrize(
    ("epoch", "partitions", "expected"),
    [
        (5, (0, 1, 9), [E.NONE] * 3),
        (6, (0,), E.STALE_MEMBER_EPOCH),
        (4, (0, 1), [E.NONE] * 2),
        (3, (0,), [E.NONE]),
        (3, (0, 1), E.STALE_MEMBER_EPOCH),
        (2, (0,), E.STALE_MEMBER_EPOCH),
        (4, (9,), E.STALE_MEMBER_EPOCH),
        (-1, (0,), E.STALE_MEMBER_EPOCH),
    ],
)
def test_a_commit_needs_an_epoch_since_the_assignment(
    offsets: Offsets, epoch: int, partitions: tuple[int, ...], expected: object
) -> None:
    assert offsets.commit(epoch, partitions=partitions) == expected
    classic = E.ILLEGAL_GENERATION if expected is E.STALE_MEMBER_EPOCH else expected
    for knows_epochs in (False, True):
        assert offsets.commit(epoch, CLASSIC, partitions=partitions, knows_epochs=knows_epochs) == classic


def test_a_refused_commit_writes_nothing(offsets: Offsets) -> None:
    parts = [PartitionCommit(T, index, Offset(7), topic_id=T_ID) for index in (0, 1)]
    decision = offsets.commits.commit(CommitRequest(GROUP, MEMBER, 3, None, parts, knows_epochs=True), 0)
    assert not decision.records


def test_metadata_that_is_too_large_is_refused_by_partition_before_the_epoch(offsets: Offsets) -> None:
    large = PartitionCommit(T, 9, Offset(7), LeaderEpoch(-1), "x" * 5000, T_ID)
    fits = PartitionCommit(T, 0, Offset(7), LeaderEpoch(-1), "", T_ID)
    decision = offsets.commits.commit(CommitRequest(GROUP, MEMBER, 4, None, [large, fits], knows_epochs=True), 0)
    assert outcome(decision.reply) == [E.OFFSET_METADATA_TOO_LARGE, E.NONE]


def test_members_of_the_consumer_protocol_need_a_version_with_epochs(offsets: Offsets) -> None:
    assert offsets.commit(5, knows_epochs=False) is E.UNSUPPORTED_VERSION
    assert offsets.commit(5, MemberId("x")) is E.UNKNOWN_MEMBER_ID
    assert offsets.commit(-1, MemberId("")) is E.UNKNOWN_MEMBER_ID, "an administrator's, while there are members"


def test_an_administrator_may_commit_to_a_group_without_members() -> None:
    assert Offsets().commit(-1, MemberId("")) == [E.NONE]
    assert Offsets().commit(0, MemberId("")) is E.UNKNOWN_MEMBER_ID


def test_transactional_clients_get_an_error_that_they_know(offsets: Offsets) -> None:
    assert offsets.commit_transactional(5) == [E.NONE]
    assert offsets.commit_transactional(5, knows_epochs=False) == [E.NONE]
    assert offsets.commit_transactional(-1, MemberId("")) == [E.NONE], "before KIP-447"
    for epoch, partition in ((6, 0), (2, 0), (4, 9)):
        assert offsets.commit_transactional(epoch, partition=partition) is E.STALE_MEMBER_EPOCH
        old = offsets.commit_transactional(epoch, partition=partition, knows_epochs=False)
        assert old is E.ILLEGAL_GENERATION
    assert offsets.commit_transactional(5, MemberId("x")) is E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("knows_epochs", [False, True])
def test_an_epoch_of_a_group_that_does_not_exist(offsets: Offsets, *, knows_epochs: bool) -> None:
    parts = [PartitionCommit(T, 0, Offset(7))]
    expected = E.GROUP_ID_NOT_FOUND if knows_epochs else E.ILLEGAL_GENERATION
    producer = Producer(ProducerId(1), ProducerEpoch(0))
    for epoch, error in ((0, expected), (-1, [E.NONE])):
        commit = CommitRequest(GroupId("x"), MEMBER, epoch, None, parts, knows_epochs=knows_epochs)
        assert outcome(offsets.commits.commit(commit, 0).reply) == error
        transactional = TransactionalCommitRequest(GroupId("x"), MEMBER, epoch, None, parts, producer, knows_epochs)
        assert outcome(offsets.commits.commit_transactional(transactional, 0).reply) == error


def test_only_a_member_in_its_epoch_and_an_administrator_may_fetch(offsets: Offsets) -> None:
    allowed = offsets.commits.fetch_refusal
    assert allowed(GROUP, None, -1) is E.NONE
    assert allowed(GROUP, MEMBER, 5) is E.NONE
    for epoch in (4, 6, -1):
        assert allowed(GROUP, MEMBER, epoch) is E.STALE_MEMBER_EPOCH
        assert allowed(GROUP, CLASSIC, epoch) is E.ILLEGAL_GENERATION
    for member_id, epoch in ((None, 5), (MemberId(""), -1), (MemberId("x"), 5)):
        assert allowed(GROUP, member_id, epoch) is E.UNKNOWN_MEMBER_ID
    assert allowed(GroupId("none"), MEMBER, 5) is E.NONE


def test_offsets_of_subscribed_topics_cannot_be_deleted(offsets: Offsets) -> None:
    regex = ConsumerMember(MemberId("r"), regex="v.*")
    offsets.apply(*records.subscription(GROUP, regex))
    offsets.apply(*records.regex(GROUP, "v.*", ResolvedRegex(frozenset([TopicName("v1")]), 1, 1)))
    for topic in ("t", "u", "v1"):
        offsets.put(TopicName(topic))
    decision = offsets.commits.delete(GROUP, [TopicPartition(TopicName(topic), 0) for topic in ("t", "u", "v1")])
    assert decision.reply == [E.GROUP_SUBSCRIBED_TO_TOPIC, E.NONE, E.GROUP_SUBSCRIBED_TO_TOPIC]
    assert decision.records == [offset_tombstone(GROUP, TopicName("u"), 0)]


def test_a_group_is_deleted_with_all_its_records_once_it_has_no_members(offsets: Offsets) -> None:
    assert offsets.commits.delete_group(GROUP).reply is E.NON_EMPTY_GROUP
    empty = Offsets()
    empty.put(T)
    decision = empty.commits.delete_group(GROUP)
    assert decision.reply is E.NONE
    tombstones = [records.encode(record) for record in records.group_tombstones(empty.group)]
    assert decision.records == [offset_tombstone(GROUP, T, 0), *tombstones]
    assert all(value is None for _, value in decision.records)
    assert group_records.decode_key(decision.records[0][0]) == group_records.OffsetCommitKey("g", "t", 0)


def test_offsets_expire_by_their_commit_unless_a_member_subscribes_to_the_topic(offsets: Offsets) -> None:
    offsets.put(T, 0)
    offsets.put(TopicName("u"), 0)
    offsets.put(TopicName("v"), 1)
    assert offsets.commits.expire(offsets.group, WEEK_MS) == [offset_tombstone(GROUP, TopicName("u"), 0)]


def test_an_empty_group_is_removed_with_its_last_offset() -> None:
    empty = Offsets()
    empty.put(T, 0)
    assert empty.commits.expire(empty.group, WEEK_MS - 1) == []
    tombstones = [records.encode(record) for record in records.group_tombstones(empty.group)]
    assert empty.commits.expire(empty.group, WEEK_MS) == [offset_tombstone(GROUP, T, 0), *tombstones]
