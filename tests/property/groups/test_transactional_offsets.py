"""Offsets in and outside transactions, in random order, against their definition.

The definition needs no state: given everything that happened, in order, an offset is *dead* once it was deleted after
it was written; of those that are not, the last one written counts among those that are visible: written outside a
transaction, or inside one whose next marker commits. It is pending while there is no next marker.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, GroupId, ProducerId, TopicName, TopicPartition
from oncelog.core.groups.model import CommitReply, PendingOffsets
from oncelog.core.groups.settings import GroupSettings
from oncelog.core.groups.shard import GroupShard
from tests.scenario.groups.driver import Driver, apply_entry

GROUPS, TOPICS, PARTITIONS, PRODUCERS = ("g", "h"), ("t", "u"), (0, 1, 2), (7, 8, 9)
OFFSETS = st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 99), min_size=1)
RETENTION_MS, CHECK_MS = 60_000, 1_000

Where = tuple[str, str, int]


class Put(NamedTuple):
    """An offset was written, by a transaction if there is a producer."""

    where: Where
    offset: int
    producer_id: int | None


class Deleted(NamedTuple):
    """An offset was deleted, or expired."""

    where: Where


class End(NamedTuple):
    """A marker."""

    producer_id: int
    committed: bool


Event = Put | Deleted | End


def visible_and_pending(history: list[Event]) -> tuple[dict[Where, int], set[tuple[int, Where, int]]]:
    """The definition: what is committed, and what each producer has pending."""
    visible: dict[Where, int] = {}
    pending: dict[tuple[int, Where], int] = {}
    for index, event in enumerate(history):
        if not isinstance(event, Put):
            continue
        later = history[index + 1 :]
        dead = Deleted(event.where) in later
        ends = [end.committed for end in later if isinstance(end, End) and end.producer_id == event.producer_id]
        if event.producer_id is None or ends[:1] == [True]:
            visible.pop(event.where, None)
            if not dead:
                visible[event.where] = event.offset
        elif not ends and not dead:
            pending[event.producer_id, event.where] = event.offset
    return visible, {(producer_id, where, offset) for (producer_id, where), offset in pending.items()}


class Transactions(RuleBasedStateMachine):
    """Three producers, two groups, two topics."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = GroupSettings(offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=CHECK_MS)
        self.driver = Driver(self.settings)
        self.history: list[Event] = []
        self.lengths: list[tuple[int, int]] = [(0, 0)]
        """Events and log entries after each step: where a power cut can leave the log."""

    def happened(self, *events: Event) -> None:
        """Note what a step did."""
        self.history += events
        self.lengths.append((len(self.history), len(self.driver.log)))

    @rule(group=st.sampled_from(GROUPS), topic=st.sampled_from(TOPICS), offsets=OFFSETS)
    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        """OffsetCommit."""
        assert isinstance(self.driver.commit(offsets, group=group, topic=topic), CommitReply)
        self.happened(*(Put((group, topic, p), o, None) for p, o in offsets.items()))

    @rule(
        group=st.sampled_from(GROUPS),
        topic=st.sampled_from(TOPICS),
        offsets=OFFSETS,
        producer_id=st.sampled_from(PRODUCERS),
    )
    def send(self, group: str, topic: str, offsets: dict[int, int], producer_id: int) -> None:
        """TxnOffsetCommit."""
        reply = self.driver.send(offsets, group=group, topic=topic, producer_id=producer_id)
        assert set(reply.partitions) == {ErrorCode.NONE}
        self.happened(*(Put((group, topic, p), o, producer_id) for p, o in offsets.items()))

    @rule(producer_id=st.sampled_from(PRODUCERS), committed=st.booleans())
    def end(self, producer_id: int, committed: bool) -> None:
        """A marker, also for a producer that has sent nothing."""
        self.driver.end(producer_id, committed=committed)
        self.happened(End(producer_id, committed))

    @rule(group=st.sampled_from(GROUPS), producer_id=st.sampled_from(PRODUCERS))
    def refused_append(self, group: str, producer_id: int) -> None:
        """A commit that the log refuses leaves no trace."""
        self.driver.refuse_appends = True
        reply = self.driver.send({0: 1}, group=group, producer_id=producer_id)
        assert reply is ErrorCode.COORDINATOR_NOT_AVAILABLE

    @rule(group=st.sampled_from(GROUPS), topic=st.sampled_from(TOPICS), partition=st.sampled_from(PARTITIONS))
    def delete(self, group: str, topic: str, partition: int) -> None:
        """OffsetDelete."""
        gone = [TopicPartition(TopicName(topic), partition)]
        self.driver.carry_out(self.driver.shard.delete_offsets(GroupId(group), gone, 0, 0))
        self.happened(Deleted((group, topic, partition)))

    @rule(group=st.sampled_from(GROUPS))
    def delete_group(self, group: str) -> None:
        """DeleteGroups."""
        self.driver.carry_out(self.driver.shard.delete_group(GroupId(group), 0, 0))
        self.happened(*(Deleted((group, topic, p)) for topic in TOPICS for p in PARTITIONS))

    @rule(topic=st.sampled_from(TOPICS))
    def delete_topic(self, topic: str) -> None:
        """A topic goes."""
        gone = [TopicPartition(TopicName(topic), partition) for partition in PARTITIONS]
        self.driver.carry_out(self.driver.shard.partitions_deleted(gone, 0))
        self.happened(*(Deleted((group, topic, p)) for group in GROUPS for p in PARTITIONS))

    @rule()
    def expire(self) -> None:
        """So much time passes that everything goes, except what a transaction has sent again."""
        self.driver.advance(RETENTION_MS + 2 * CHECK_MS)
        visible, pending = visible_and_pending(self.history)
        kept = {where for _, where, _ in pending}
        self.happened(*(Deleted(where) for where in visible if where not in kept))

    @precondition(lambda self: len(self.lengths) > 1)
    @rule(data=st.data())
    def power_cut(self, data: st.DataObject) -> None:
        """Load the log as it was after some earlier step."""
        recent = max(0, len(self.lengths) - 4)
        kept = data.draw(st.integers(recent, len(self.lengths) - 1))
        del self.lengths[kept + 1 :]
        events, entries = self.lengths[-1]
        del self.history[events:]
        self.driver = Driver(self.settings, self.driver.now_ms, self.driver.log[:entries])

    @invariant()
    def the_shard_answers_what_the_definition_says(self) -> None:
        """With and without ``require_stable``; the driver has compared a replay of the log."""
        visible, pending = visible_and_pending(self.history)
        assert pending_of(self.driver.shard) == pending
        unstable = {where for _, where, _ in pending}
        every = [(group, topic, p) for group in GROUPS for topic in TOPICS for p in PARTITIONS]
        for stable in (False, True):
            expected = {where: visible.get(where, -1) for where in every}
            if stable:
                expected.update(dict.fromkeys(unstable, "unstable"))  # type: ignore[arg-type]  # told apart by value
            assert {where: fetched(self.driver.shard, where, stable=stable) for where in every} == expected

    def teardown(self) -> None:
        """Loaded entry by entry, the shard holds its invariants everywhere and the definition after each step."""
        shard = GroupShard(0, self.settings)
        position = 0
        for events, entries in self.lengths:
            for entry in self.driver.log[position:entries]:
                apply_entry(shard, entry)
                shard.check()
            position = entries
            visible, pending = visible_and_pending(self.history[:events])
            assert {(g, t, p): o for g, t, p, o in shard.committed_offsets()} == visible
            assert pending_of(shard) == pending


def fetched(shard: GroupShard, where: Where, *, stable: bool) -> int | str:
    """OffsetFetch of one partition. Nobody's pending offsets are passed over before they are known to be undecided."""
    group, topic, partition = where
    requests = [(TopicName(topic), NO_TOPIC_ID, partition)]
    reply: Any = shard.fetch_offsets(GroupId(group), requests, 0, 0, require_stable=stable).reply
    senders = frozenset(ProducerId(producer_id) for producer_id, place, _ in pending_of(shard) if place == where)
    if senders and not stable:
        assert reply == PendingOffsets(0, senders)
        reply = shard.fetch_offsets(GroupId(group), requests, 0, 0, undecided=senders).reply
    (result,) = reply
    return "unstable" if result.error_code is ErrorCode.UNSTABLE_OFFSET_COMMIT else int(result.committed.offset)


def pending_of(shard: GroupShard) -> set[tuple[int, Where, int]]:
    """The offsets that the shard holds as pending."""
    return {
        (producer_id, tuple(where), held.offset)  # type: ignore[misc]  # three items
        for producer_id, offsets in shard.pending_offsets().items()
        for where, held in offsets.items()
    }


TestTransactions = pytest.mark.slow(Transactions.TestCase)
TestTransactions.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
