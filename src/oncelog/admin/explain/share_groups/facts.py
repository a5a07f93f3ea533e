"""Gathers the facts that explain why a share group does not advance: members, start offsets, records in flight, and the
changes that share coordinators have logged (KIP-932).

The coordinator is queried first. Leaders of oncelog tell locks, those of Apache Kafka do not: there the log of
``__share_group_state`` alone has the states of records. A refused request leaves its part of the facts empty.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.admin.configs import ResourceType, describe_configs
from oncelog.admin.explain.group_facts import Denied, denied_operations
from oncelog.admin.explain.partition_facts import PartitionFacts, partition_facts
from oncelog.admin.group_descriptions import GroupDescription, MemberRow
from oncelog.admin.share_deliveries import (
    ACQUIRED,
    AVAILABLE,
    TERMINAL,
    ShareBatchRow,
    ShareDeliveryRow,
    as_led,
    leader_deliveries,
    recorded_row,
)
from oncelog.admin.share_groups import ShareOffsetRow, share_offsets
from oncelog.admin.share_state_log import RecordedState, read_states
from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.fetches import fetch_request, fetched_in
from oncelog.base.ids import TopicPartition
from oncelog.base.units import KIB
from oncelog.client.errors import ClientError
from oncelog.client.machine.consumed_records import visible_batches
from oncelog.client.programs import Cluster, Program
from oncelog.records.errors import CorruptBatch
from oncelog.records.record import read_records

LOCK_DURATION: Final = "share.record.lock.duration.ms"
DELIVERY_LIMIT: Final = "share.delivery.count.limit"
MOST_LOCKS: Final = "share.partition.max.record.locks"
ISOLATION: Final = "share.isolation.level"
OFFSET_RESET: Final = "share.auto.offset.reset"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
AUTO_CREATE: Final = "errors.deadletterqueue.auto.create.topics.enable"
NAME_PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
TOPIC_TAKES_THEM: Final = "errors.deadletterqueue.group.enable"
_GROUP_KEYS: Final = (LOCK_DURATION, DELIVERY_LIMIT, MOST_LOCKS, ISOLATION, OFFSET_RESET, DEAD_LETTER_TOPIC)
_BROKER_KEYS: Final = (
    *(f"group.{key}" for key in (LOCK_DURATION, DELIVERY_LIMIT, MOST_LOCKS)),
    AUTO_CREATE,
    NAME_PREFIX,
)
_DEFAULTS: Final = {LOCK_DURATION: 30_000, DELIVERY_LIMIT: 5, MOST_LOCKS: 2_000}
_DEAD_LETTERS_SINCE: Final = 2
MOST_LOOKED_INTO: Final = 20
"""Ranges of archived offsets that are read, since these may be no records."""
_PEEK_BYTES: Final = 64 * KIB
_MOST_DECODED: Final = 1 << 20
_AVAILABLE, _ARCHIVED = 0, (3, 4)


class Change(NamedTuple):
    """Records that came to a state. ``at_ms`` is when that became durable."""

    partition: TopicPartition
    first_offset: int
    last_offset: int
    delivery_count: int
    at_ms: int

    @property
    def records(self) -> int:
        return self.last_offset - self.first_offset + 1


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The topic for dead letters, empty if none is set. ``obstacle`` is why records cannot be copied there."""

    topic: str = ""
    obstacle: str = ""


@dataclass(slots=True)
class ShareGroupFacts:
    """A share group with its partitions. If ``recorded`` is None, ``no_record`` says why."""

    description: GroupDescription
    now_ms: int
    offsets: Mapping[TopicPartition, ShareOffsetRow] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, PartitionFacts] = field(default_factory=dict)
    told: Mapping[TopicPartition, ShareDeliveryRow] = field(default_factory=dict)
    """The windows of partitions whose leaders tell them."""
    recorded: Mapping[TopicPartition, RecordedState] | None = None
    no_record: str = ""
    window_ms: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    dead_letters: DeadLetters = field(default_factory=DeadLetters)
    record_counts: Mapping[Change, int] = field(default_factory=dict)
    """How many of the archived offsets are records to lose, where that was looked up: others are gaps, markers, or
    records of aborted transactions."""
    denied: Sequence[Denied] = ()
    no_permissions: str = ""

    def number(self, key: str) -> int:
        text = self.settings.get(key, "")
        return int(text) if text.isascii() and text.isdigit() else _DEFAULTS[key]

    @property
    def reads_committed(self) -> bool:
        return self.settings.get(ISOLATION, "").lower() == "read_committed"

    def window(self, partition: TopicPartition) -> ShareDeliveryRow | None:
        """The records in flight, as the leader tells them, or as they were last recorded."""
        if partition in self.told:
            return self.told[partition]
        state = None if self.recorded is None else self.recorded.get(partition)
        return None if state is None else recorded_row(self.description.group, partition, state)

    def first_open(self, partition: TopicPartition) -> int | None:
        """The first offset that is not dealt with. A start offset is recorded one write after the records before it, so
        that records from it on may be dealt with already."""
        row, offset = self.window(partition), self.offsets.get(partition)
        if offset is None or offset.start_offset is None:
            return None
        first = offset.start_offset
        for batch in () if row is None else row.batches:
            if batch.state in TERMINAL and batch.first_offset <= first <= batch.last_offset:
                first = batch.last_offset + 1
        return first

    def in_flight(self, partition: TopicPartition) -> int:
        """The number of offsets in the window; from the log, at least so many."""
        row, first = self.window(partition), self.first_open(partition)
        if row is None or first is None:
            return 0
        if row.in_flight_records is not None:
            return row.in_flight_records
        return max(0, row.batches[-1].last_offset - first + 1) if row.batches else 0

    def to_deliver(self, partition: TopicPartition) -> int | None:
        """Offsets whose delivery is not complete; up to the last stable offset if the group reads committed records.
        None if unknown.
        """
        offset, facts = self.offsets.get(partition), self.partitions.get(partition)
        if offset is None or offset.lag is None:
            return None
        held = facts.bounds.held if self.reads_committed and facts is not None and facts.bounds is not None else 0
        return max(0, offset.lag - held)

    def written_ms(self, partition: TopicPartition) -> int | None:
        """When the state of a partition was last written."""
        state = None if self.recorded is None else self.recorded.get(partition)
        return None if state is None or not state.written_ms else state.written_ms

    def moved_ms(self, partition: TopicPartition) -> int | None:
        """When all records before the first open one were dealt with; None if the log no longer has it."""
        state = None if self.recorded is None else self.recorded.get(partition)
        first = self.first_open(partition)
        if state is None or first is None:
            return None
        if first == state.start_offset:
            return state.moved_ms()
        before = (
            change.at_ms
            for change in reversed(state.changes)
            if any(batch.first_offset < first <= batch.last_offset + 1 for batch in change.batches)
        )
        return next(before, None)

    def member(self, member_id: str) -> MemberRow | None:
        return next((member for member in self.description.members if member.member_id == member_id), None)

    def readers(self, partition: TopicPartition) -> list[MemberRow]:
        return [member for member in self.description.members if partition in member.partitions]

    def acquired(self, partition: TopicPartition) -> list[ShareBatchRow]:
        row = self.told.get(partition)
        return [] if row is None else [batch for batch in row.batches if batch.state == ACQUIRED]

    def undelivered(self, partition: TopicPartition) -> list[ShareBatchRow]:
        """Records that have been delivered, and whose delivery is not complete."""
        row = self.window(partition)
        return [] if row is None else [batch for batch in row.batches if batch.state in (AVAILABLE, ACQUIRED)]

    def blocking_first(self, partition: TopicPartition) -> tuple[int, int] | None:
        """The first offset that is not dealt with, and how many after it are; None if none is."""
        row, first = self.window(partition), self.first_open(partition)
        if row is None or first is None:
            return None
        done = sum(batch.records for batch in row.batches if batch.state in TERMINAL and batch.first_offset > first)
        return (first, done) if done else None

    def returned(self) -> Iterator[Change]:
        """Records that became available again within the window of time: released, or their lock has ended."""
        yield from self._changes((_AVAILABLE,))

    def archived(self) -> Iterator[Change]:
        """Records that were archived within the window of time, or whose dead letters are being written."""
        seen: set[tuple[TopicPartition, int]] = set()
        for change in self._changes(_ARCHIVED):
            # A record with a dead letter is written twice: archiving, then archived.
            if (change.partition, change.first_offset) not in seen and self.records_in(change):
                seen.add((change.partition, change.first_offset))
                yield change

    def records_in(self, change: Change) -> int:
        return self.record_counts.get(change, change.records)

    def _changes(self, states: Sequence[int]) -> Iterator[Change]:
        since_ms = self.now_ms - self.window_ms
        for partition, state in (self.recorded or {}).items():
            for change in state.changes:
                if change.at_ms >= since_ms:
                    for first, last, delivery_state, count in change.batches:
                        if delivery_state in states:
                            yield Change(partition, first, last, count, change.at_ms)


def share_group_facts(
    cluster: Cluster, description: GroupDescription, *, window_ms: int, principal: str | None = None
) -> Program[tuple[ShareGroupFacts, list[Unanswered]]]:
    """The facts of a share group. Raises BrokerRefused."""
    group = description.group
    facts = ShareGroupFacts(description, cluster.environment.wall_ms(), window_ms=window_ms)
    rows = yield from share_offsets(cluster, group)
    facts.offsets = {row.topic_partition: row for row in rows}
    assigned = {partition for member in description.members for partition in member.partitions}
    facts.partitions, unanswered = yield from partition_facts(cluster, {*facts.offsets, *assigned})
    facts.told, silent = yield from leader_deliveries(cluster, group, sorted(facts.offsets))
    facts.offsets = {row.topic_partition: row for row in as_led(description, rows, facts.told.values())}
    with contextlib.suppress(ClientError):
        facts.settings = yield from _settings(cluster, description)
    try:
        facts.recorded = yield from read_states(cluster, group, facts.offsets)
    except ClientError as error:
        facts.no_record = str(error)
    with contextlib.suppress(ClientError):
        facts.dead_letters = yield from _dead_letters(cluster, description, facts.settings)
    facts.record_counts = yield from _record_counts(cluster, facts)
    if principal is not None:
        topics = sorted({partition.topic for partition in facts.partitions})
        try:
            facts.denied = yield from denied_operations(cluster, description, topics, (), principal)
        except ClientError as error:
            facts.no_permissions = str(error)
    return facts, [*unanswered, *silent]


def _settings(cluster: Cluster, description: GroupDescription) -> Program[dict[str, str]]:
    """The group's settings; where a release has none of a group, those of its coordinator."""
    settings: dict[str, str] = {}
    for row in (yield from describe_configs(cluster, ResourceType.BROKER, str(description.coordinator), _BROKER_KEYS)):
        if row.value is not None:
            settings[row.name.removeprefix("group.")] = row.value
    for row in (yield from describe_configs(cluster, ResourceType.GROUP, description.group, _GROUP_KEYS)):
        if row.value is not None:
            settings[row.name] = row.value
    return settings


def _dead_letters(cluster: Cluster, description: GroupDescription, settings: Mapping[str, str]) -> Program[DeadLetters]:
    topic = settings.get(DEAD_LETTER_TOPIC, "")
    if not topic:
        return DeadLetters()
    link = yield from cluster.link(description.coordinator)
    level = link.versions.features.get("share.version", 0)
    if level < _DEAD_LETTERS_SINCE:
        return DeadLetters(
            topic, f"the cluster's share.version is {level}, and dead letters need {_DEAD_LETTERS_SINCE}"
        )
    prefix = settings.get(NAME_PREFIX, "")
    if topic.startswith("__"):
        return DeadLetters(topic, "its name is that of an internal topic")
    if (yield from cluster.metadata({topic}))[topic].exists:  # type: ignore[index]  # a name
        rows = yield from describe_configs(cluster, ResourceType.TOPIC, topic, (TOPIC_TAKES_THEM,))
        if any(row.value == "false" for row in rows):
            return DeadLetters(topic, f"its setting {TOPIC_TAKES_THEM} is false")
    elif settings.get(AUTO_CREATE, "false") != "true":
        return DeadLetters(topic, f"it does not exist, and {AUTO_CREATE} is false")
    if not topic.startswith(prefix):
        return DeadLetters(topic, f"its name does not begin with {prefix!r} ({NAME_PREFIX})")
    return DeadLetters(topic)


def _record_counts(cluster: Cluster, facts: ShareGroupFacts) -> Program[dict[Change, int]]:
    """The number of records in archived ranges; the first ranges are looked up."""
    limit = facts.number(DELIVERY_LIMIT)
    # Nothing but a record is delivered so often.
    unclear = [change for change in facts.archived() if change.delivery_count < limit]
    counts = {}
    for change in unclear[:MOST_LOOKED_INTO]:
        count = yield from _records_in(cluster, change, facts.reads_committed)
        if count is not None:
            counts[change] = count
    return counts


def _records_in(cluster: Cluster, change: Change, committed: bool) -> Program[int | None]:
    """The records in a range that the group can see; what is not read at once counts whole. None if it cannot be
    read."""
    first, last = change.first_offset, change.last_offset
    positions = {change.partition: first}
    try:
        leader = yield from cluster.leader(change.partition)
        request = fetch_request(cluster.view, positions, _PEEK_BYTES, read_committed=committed)
        answer = yield from cluster.request(request, broker=leader)
        fetched = next(iter(fetched_in(cluster.view, answer, positions)), None)
        if fetched is None or fetched.error_code or not fetched.records:
            return None
        count = max(0, last + 1 - fetched.next_offset)
        for at, header in visible_batches(fetched, read_committed=committed):
            if header.last_offset >= first and header.base_offset <= last:
                records = read_records(fetched.records, at, header, _MOST_DECODED)
                count += sum(first <= record.offset <= last for record in records)
        return count
    except (ClientError, CorruptBatch):
        return None
