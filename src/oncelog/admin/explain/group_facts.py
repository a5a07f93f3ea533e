"""Gathers the facts that explain why a group does not advance: its members, offsets, next records and history.

The coordinator is queried first; without its answer nothing else is known. History, quotas and permissions need rights
of their own; where these are missing, the facts say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from oncelog.admin.explain.consumer_group_facts import (
    RECONCILING,
    ConsumerGroupFacts,
    consumer_group_facts,
    look_again,
    unassigned_matches,
)
from oncelog.admin.explain.consumer_group_history import EpochHistory
from oncelog.admin.explain.group_history import GroupHistory, read_history
from oncelog.admin.explain.partition_facts import PartitionFacts, partition_facts
from oncelog.admin.group_descriptions import GroupDescription, MemberRow
from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.partition_offsets import read_at, readable_before
from oncelog.base.acls import Operation, ResourceType
from oncelog.base.ids import TopicPartition
from oncelog.base.units import MIB
from oncelog.client.errors import ClientError
from oncelog.client.machine.requests import offset_query
from oncelog.client.programs import Cluster, Program
from oncelog.client.programs.group import committed_offsets
from oncelog.client.programs.log_offsets import list_offsets
from oncelog.records.batch import read_header
from oncelog.records.errors import CorruptBatch
from oncelog.records.record import read_records
from oncelog.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

MOST_LOOKED_INTO: Final = 20
"""Partitions whose next batch is read: those with the most unread records."""
MOST_CLIENT_IDS: Final = 20
"""Client ids whose quotas are read, with two requests each."""
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
_CLIENT_ID: Final = "client-id"
_EXACT, _DEFAULT = 0, 1
_MOST_DECODED: Final = MIB


@dataclass(frozen=True, slots=True)
class NextBatch:
    """The batch that a consumer gets next. ``first_offset`` is its first record at or after the position."""

    base_offset: int
    first_offset: int
    size_bytes: int
    record_count: int

    @property
    def bytes_a_record(self) -> float:
        return self.size_bytes / max(1, self.record_count)


@dataclass(frozen=True, slots=True)
class Growth:
    """The first record that was written to a partition while its present owner had it."""

    offset: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Denied:
    """An operation that the principal may not do. ``reason`` says which entry denies it, or that none allows it."""

    principal: str
    kind: str
    name: str
    operation: str
    reason: str


@dataclass(slots=True)
class GroupFacts:
    """A group with its partitions. Offsets are the next to read. If ``history`` is None, ``no_history`` says why."""

    description: GroupDescription
    now_ms: int
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, PartitionFacts] = field(default_factory=dict)
    history: GroupHistory | None = None
    no_history: str = ""
    next_batches: Mapping[TopicPartition, NextBatch] = field(default_factory=dict)
    only_markers: frozenset[TopicPartition] = frozenset()
    """Partitions with nothing but transaction markers between the position and the last stable offset."""
    growth: Mapping[TopicPartition, Growth] = field(default_factory=dict)
    """For ``uncommitted`` partitions that have grown since their owner got them."""
    quotas: Mapping[str, float] = field(default_factory=dict)
    """consumer_byte_rate in bytes per second, by client id, of members that have one."""
    denied: Sequence[Denied] = ()
    no_permissions: str = ""
    """Why permissions could not be checked."""
    consumer: ConsumerGroupFacts = field(default_factory=ConsumerGroupFacts)
    # The group LOOK_AGAIN_MS later, if it seems to wait for a member that never joins.
    later: GroupDescription | None = None

    @property
    def owners(self) -> dict[TopicPartition, MemberRow]:
        return {partition: member for member in self.description.members for partition in member.partitions}

    @property
    def epochs(self) -> EpochHistory:
        """The recent past of a group of the consumer protocol; empty if it may not be read."""
        return EpochHistory() if self.history is None else self.history.epochs

    @property
    def uncommitted(self) -> frozenset[TopicPartition]:
        """Assigned partitions with records and without a committed offset: the offsets left to read are unknown."""
        return frozenset(
            partition
            for partition in self.owners
            if partition not in self.committed and (facts := self.partitions.get(partition)) is not None
            if facts.bounds is not None and facts.bounds.end_offset > (facts.log_start or 0)
        )

    def had_since_ms(self, member_id: str) -> int | None:
        """A time since which a member has had its present partitions without a change; None without a history."""
        if self.history is None:
            return None
        progress = self.epochs.progress.get(member_id)
        if progress is not None:
            return progress.since_ms
        return max((generation.at_ms for generation in self.history.generations), default=self.history.since_ms)

    def rebalance_timeout_ms(self, member_id: str) -> int | None:
        """The max.poll.interval.ms of a member, by its newest record within the window."""
        subscription = self.epochs.subscriptions.get(member_id)
        if subscription is not None:
            return subscription.rebalance_timeout_ms
        generations = [] if self.history is None else self.history.generations
        members = (member for generation in reversed(generations) for member in generation.members)
        return next((member.rebalance_timeout_ms for member in members if member.member_id == member_id), None)

    @property
    def unassigned_topics(self) -> list[str]:
        """Topics that a regular expression of a member matches, and that no member's target has."""
        missing = unassigned_matches(self.description, self.consumer.matches)
        return sorted({topic for topics in missing.values() for topic in topics})

    def last_move_ms(self, partition: TopicPartition) -> int | None:
        """The time of the commit that moved the group to its present offset; None if unknown."""
        commit = None if self.history is None else self.history.last_move(partition)
        return None if commit is None else commit.at_ms

    def to_read(self, partition: TopicPartition) -> int:
        """Offsets to the last stable offset; 0 if unknown, or if only markers and aborted records are left."""
        facts, position = self.partitions.get(partition), self.committed.get(partition)
        if facts is None or facts.bounds is None or position is None or partition in self.only_markers:
            return 0
        return max(0, facts.bounds.last_stable_offset - position)


def group_facts(
    cluster: Cluster, description: GroupDescription, *, window_ms: int, principal: str | None = None
) -> Program[tuple[GroupFacts, list[Unanswered]]]:
    """The facts of a group that commits offsets. Raises BrokerRefused with the coordinator's error."""
    facts = GroupFacts(description, cluster.environment.wall_ms())
    try:
        facts.history = yield from read_history(cluster, description.group, facts.now_ms, window_ms)
    except ClientError as error:
        facts.no_history = str(error)
    first = facts.description
    # The log has the times of all changes. Without it two looks tell at least how a moving group goes on.
    if facts.history is None and first.state in RECONCILING:
        facts.description, facts.now_ms = (yield from look_again(cluster, first)), cluster.environment.wall_ms()
    facts.consumer = yield from consumer_group_facts(cluster, facts.description)
    facts.consumer.earlier = None if facts.description is first else first
    facts.committed = yield from _committed(cluster, facts.description)
    facts.partitions, unanswered = yield from partition_facts(cluster, {*facts.committed, *facts.owners})
    yield from look_into(cluster, facts)
    if principal is not None:
        yield from add_permissions(cluster, facts, principal)
    return facts, unanswered


def add_permissions(cluster: Cluster, facts: GroupFacts, principal: str) -> Program[None]:
    try:
        topics = sorted({partition.topic for partition in facts.partitions})
        seen = facts.unassigned_topics[:MOST_LOOKED_INTO]
        facts.denied = yield from denied_operations(cluster, facts.description, topics, seen, principal)
    except ClientError as error:
        facts.no_permissions = str(error)


def look_into(cluster: Cluster, facts: GroupFacts) -> Program[None]:
    """Add the facts that cost requests for each group: next records, growth, quotas."""
    # Each partition costs two fetches: the largest backlogs matter most.
    lagging = sorted(
        (partition for partition in facts.partitions if facts.to_read(partition)), key=facts.to_read, reverse=True
    )
    facts.only_markers, facts.next_batches = yield from _next_records(cluster, facts, lagging[:MOST_LOOKED_INTO])
    facts.growth = yield from growth_of(cluster, facts)
    facts.quotas = yield from _quotas(cluster, sorted({member.client_id for member in facts.description.members}))


def _committed(cluster: Cluster, described: GroupDescription) -> Program[dict[TopicPartition, int]]:
    stored = yield from committed_offsets(cluster, described.group)
    return {partition: committed.offset for partition, committed in stored.items()}


def _next_records(
    cluster: Cluster, facts: GroupFacts, lagging: Sequence[TopicPartition]
) -> Program[tuple[frozenset[TopicPartition], dict[TopicPartition, NextBatch]]]:
    """The partitions with only markers and aborted records to read, and the next batch of the others."""
    only_markers = set()
    for partition in lagging:
        bounds = facts.partitions[partition].bounds
        if bounds is not None:
            has_data = yield from readable_before(
                cluster, partition, facts.committed[partition], bounds.last_stable_offset
            )
            if not has_data:
                only_markers.add(partition)
    batches = {}
    for partition in lagging:
        if partition not in only_markers:
            batch = yield from _next_batch(cluster, partition, facts.committed[partition])
            if batch is not None:
                batches[partition] = batch
    return frozenset(only_markers), batches


def _next_batch(cluster: Cluster, partition: TopicPartition, position: int) -> Program[NextBatch | None]:
    """The first data batch from ``position`` on; None if it cannot be read."""
    try:
        records = yield from read_at(cluster, partition, position)
        at = 0
        while at < len(records):
            header = read_header(records, at)
            if not header.is_control and header.last_offset >= position:
                first = max(position, header.base_offset)
                # Decoding is bounded; without it the base offset stands for the first record.
                if header.size_bytes <= min(_MOST_DECODED, len(records) - at):
                    batch_records = read_records(records, at, header, _MOST_DECODED)
                    first = next((record.offset for record in batch_records if record.offset >= position), first)
                return NextBatch(header.base_offset, first, header.size_bytes, header.record_count)
            at += header.size_bytes
    except (ClientError, CorruptBatch):
        return None
    return None


def growth_of(cluster: Cluster, facts: GroupFacts) -> Program[dict[TopicPartition, Growth]]:
    """The growth of uncommitted partitions, by the times of their records; empty if that cannot be found out."""
    uncommitted = facts.uncommitted
    had_since = {
        partition: offset_query(since_ms)
        for partition, owner in facts.owners.items()
        if partition in uncommitted and (since_ms := facts.had_since_ms(owner.member_id)) is not None
    }
    if not had_since:
        return {}
    try:
        listed = yield from list_offsets(cluster, had_since, read_committed=True)
    except ClientError:
        return {}
    return {
        partition: Growth(first.offset, first.timestamp) for partition, first in listed.items() if first.offset >= 0
    }


def _quotas(cluster: Cluster, client_ids: Iterable[str]) -> Program[dict[str, float]]:
    """Fetch quotas by client id: its own, or else the default. Without permission there are none."""
    message = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=_CLIENT_ID, match_type=_EXACT, match=None)], strict=True
    )
    quotas: dict[str, float] = {}
    for client_id in islice(client_ids, MOST_CLIENT_IDS):
        # A client's own quota overrides the default.
        for match_type, match in ((_EXACT, client_id), (_DEFAULT, None)):
            message.components = [ComponentData(entity_type=_CLIENT_ID, match_type=match_type, match=match)]
            try:
                answer = yield from cluster.request(message)
            except ClientError:
                return quotas
            values = {value.key: value.value for entry in answer.entries or () for value in entry.values}
            if CONSUMER_BYTE_RATE in values:
                quotas[client_id] = values[CONSUMER_BYTE_RATE]
                break
    return quotas


def denied_operations(
    cluster: Cluster, described: GroupDescription, topics: Iterable[str], seen: Iterable[str], principal: str
) -> Program[list[Denied]]:
    """Everything that the group's members need and ``principal`` may not do: to read ``topics``, and to see ``seen``.
    Raises BrokerRefused if the lists may not be read.
    """
    from oncelog.admin import acls  # seldom needed

    # Without members any host will do: entries for single hosts are rare.
    hosts = sorted({member.host.lstrip("/") for member in described.members}) or ["*"]
    needs = [
        (ResourceType.GROUP, described.group, Operation.READ),
        *((ResourceType.TOPIC, topic, Operation.READ) for topic in topics),
        *((ResourceType.TOPIC, topic, Operation.DESCRIBE) for topic in seen),
    ]
    denied = []
    for kind, name, operation in needs:
        for host in hosts:
            answer = yield from acls.explain(cluster, kind, name, principal, host, [operation])
            denied += [
                Denied(principal, kind.name.lower(), name, decision.operation.name.title(), str(decision.reason.value))
                for decision in answer.decisions
                if not decision.allowed
            ]
    return list(dict.fromkeys(denied))
