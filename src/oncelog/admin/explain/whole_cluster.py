"""Explains a whole cluster: all groups, topics, brokers and transactions, in bulk."""

# Steps: (1) groups with members and offsets; (2) both ends of all partitions; (3) the open transactions of held
# partitions alone, with their coordinators; (4) the recent commits of all groups with members, which tell those that
# advance; (5) the groups that do not, each as ``explain group`` does. The causes are those of ``group_findings``, so
# a group has one verdict everywhere. Offsets are read before the ends, or a position could seem to be beyond them.
#
# The rule: what does not answer is reported as unknown. Requests are in slices, and only ``MOST_INSPECTED`` groups
# cost requests of their own.

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from oncelog.admin.cluster_status import ClusterStatus, cluster_status
from oncelog.admin.explain.cluster_groups import ClusterGroups, read_groups
from oncelog.admin.explain.cluster_problems import (
    coordinator_problem,
    finding_problem,
    group_problem,
    status_problems,
    transaction_problems,
    verdict_of,
)
from oncelog.admin.explain.cluster_report import ClusterReport, GroupSummary, Problem, TopicLag, report_of
from oncelog.admin.explain.consumer_group_facts import RECONCILING, consumer_group_facts
from oncelog.admin.explain.findings import Cause, Finding, merge_alike
from oncelog.admin.explain.group_causes import group_findings
from oncelog.admin.explain.group_facts import GroupFacts, add_permissions, look_into
from oncelog.admin.explain.group_history import WINDOW_MS, GroupHistory, offsets_partition_count, read_histories
from oncelog.admin.explain.id_facts import IdFacts, id_facts
from oncelog.admin.explain.id_problems import time_out_problems, unfinished_problems, unused_problems
from oncelog.admin.explain.partition_causes import partition_findings
from oncelog.admin.explain.partition_facts import PartitionFacts, leader_ends, log_starts, partition_facts
from oncelog.admin.explain.pending_members import look_twice
from oncelog.admin.explain.share_groups.bulk import (
    ClusterShareGroups,
    read_share_groups,
    share_group_problems,
    share_summary,
)
from oncelog.admin.group_descriptions import GroupDescription
from oncelog.admin.transactions.blocked_groups import pending_offsets
from oncelog.admin.transactions.broker_requests import Progress, Unanswered, no_progress, slices_of
from oncelog.admin.transactions.cluster_scan import OpenTransaction, examine
from oncelog.admin.transactions.history.unused_ids import IDLE_MS
from oncelog.admin.transactions.partition_offsets import Bounds, bounds_of, readable_before
from oncelog.admin.transactions.producers import describe_producers
from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import CONSUMER_OFFSETS, TopicName, TopicPartition
from oncelog.base.text import counted
from oncelog.base.units import MIB, MINUTE_MS
from oncelog.client.errors import ClientError
from oncelog.client.machine.metadata import TopicInfo
from oncelog.client.programs import Cluster, Program, operation, parallel
from oncelog.client.programs.steps import Sleep

__all__ = ["ClusterReport", "Problem", "explain_cluster"]

SLICE: Final = 5_000
"""Partitions whose ends are read at once."""
RECENT_MS: Final = MINUTE_MS
"""How far back commits are read to tell the groups that advance."""
HISTORY_BYTES: Final = 64 * MIB
"""Bytes of __consumer_offsets that are read, shared by its partitions."""
MOST_INSPECTED: Final = 40
"""Groups that cost requests of their own: those with the most unread records."""
MOST_CLOSE: Final = 20
"""Positions just before a last stable offset whose remaining records are looked at."""
SLOW_MS: Final = 2_000
"""How long a follower may keep records from consumers before it is a problem."""
MOST_PENDING: Final = 50
"""Groups that are asked for offsets in an open transaction."""
_HISTORIES_AT_ONCE: Final = 4
_TOPICS_MAX_AGE_MS: Final = 500
_STEPS: Final = 6
_UNSETTLED: Final = RECONCILING | {"PreparingRebalance", "CompletingRebalance"}


@dataclass(slots=True)
class ClusterFacts:
    """Everything that is read in bulk. ``partitions`` has those that groups use."""

    status: ClusterStatus
    topics: Mapping[TopicName, TopicInfo]
    groups: ClusterGroups
    now_ms: int
    bounds: dict[TopicPartition, Bounds] = field(default_factory=dict)
    partitions: dict[TopicPartition, PartitionFacts] = field(default_factory=dict)
    transactions: list[OpenTransaction] = field(default_factory=list)
    unanswered: list[Unanswered] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    share: ClusterShareGroups = field(default_factory=ClusterShareGroups)

    def facts_of(self, group: str) -> GroupFacts:
        described = self.groups.descriptions[group]
        committed = self.groups.committed.get(group, {})
        owned = (partition for member in described.members for partition in member.partitions)
        used = {partition: self.partitions[partition] for partition in {*committed, *owned} & self.partitions.keys()}
        return GroupFacts(described, self.now_ms, committed, dict(sorted(used.items())))


@operation
def explain_cluster(
    cluster: Cluster,
    *,
    window_ms: int = WINDOW_MS,
    options: str = "",
    principal: str | None = None,
    earlier: IdFacts | None = None,
    idle_ids_ms: int = IDLE_MS,
    progress: Progress = no_progress,
) -> Program[ClusterReport]:
    """Everything that is wrong in the cluster, worst first.

    ``principal`` is the identity of the groups' members, whose permissions are checked where a group does not advance.
    ``earlier`` are the ``id_facts`` of the last report, reused while they are young. Raises NoBrokerReachable,
    BrokerRefused.
    """
    facts = yield from _bulk_facts(cluster, progress)
    groups = {group: facts.facts_of(group) for group in facts.groups.descriptions if group in facts.groups.committed}
    progress(4, _STEPS)
    suspects = yield from _without_progress(cluster, facts, groups)
    progress(5, _STEPS)
    yield from _inspect(cluster, facts, suspects, window_ms, principal)
    waiting = yield from _waiting_groups(cluster, facts, groups)
    ids = yield from id_facts(cluster, facts.transactions, facts.now_ms, earlier, window_ms, idle_ids_ms)
    findings = {group: _findings(group_facts, options) for group, group_facts in groups.items()}
    lost = ids.lost_markers
    problems = transaction_problems(facts.transactions, waiting, facts.bounds, facts.now_ms, options, lost)
    problems += status_problems(facts.status, lambda partitions: _users(groups, partitions), options)
    for group, causes in findings.items():
        unread = sum(groups[group].to_read(partition) for partition in groups[group].partitions)
        problem = group_problem(group, causes, unread, options)
        problems += [] if problem is None else [problem]
    problems += yield from share_group_problems(cluster, facts.share, facts.now_ms, window_ms, principal, options)
    problems += _coordinators(facts, options)
    problems += yield from _slow_followers(cluster, facts, options)
    problems += _id_problems(facts, ids, options)
    progress(_STEPS, _STEPS)
    summaries = [_summary(facts, description) for description in facts.groups.descriptions.values()]
    summaries += [share_summary(facts.share, description) for description in facts.share.descriptions.values()]
    unanswered = [*facts.unanswered, *facts.share.unanswered]
    unknown = list(dict.fromkeys([*facts.status.not_seen, *map(str, unanswered), *facts.unknown]))
    return report_of(facts.status, facts.transactions, problems, summaries, unknown, facts.now_ms, ids)


def _id_problems(facts: ClusterFacts, ids: IdFacts, options: str) -> list[Problem]:
    if ids.ends.problem is not None:
        facts.unknown.append(f"transactions aborted at their time-out: {ids.ends.problem}")
    facts.unknown += [str(unanswered) for unanswered in ids.unanswered]
    shown = {transaction.transactional_id for transaction in facts.transactions}
    return [
        *unfinished_problems(ids.open_rows, shown, facts.now_ms, options),
        *time_out_problems(ids.ends.repeated, ids.clients, options),
        *unused_problems(ids.census.unused, options),
    ]


def _slow_followers(cluster: Cluster, facts: ClusterFacts, options: str) -> Program[list[Problem]]:
    """Replicas in sync that have kept records from consumers for some time."""
    replicated = [
        TopicPartition(name, index)
        for name, topic in facts.topics.items()
        for index, info in topic.partitions.items()
        if info.leader >= 0 and len(info.isr) > 1
    ]
    behind: dict[TopicPartition, int] = {}
    for part in slices_of(replicated, SLICE):
        ends = yield from leader_ends(cluster, part)
        behind |= {p: end for p, end in ends.items() if (limits := facts.bounds.get(p)) and end > limits.end_offset}
    # A busy leader is always a few milliseconds ahead; the same records have to be missing for a while.
    deadline_ms = cluster.now_ms() + SLOW_MS
    while behind:
        bounds, _ = yield from bounds_of(cluster, behind)
        behind = {p: end for p, end in behind.items() if (limits := bounds.get(p)) and end > limits.end_offset}
        if cluster.now_ms() >= deadline_ms:
            break
        yield Sleep(SLOW_MS // 10)
    detailed, _ = yield from partition_facts(cluster, list(behind)[:MOST_INSPECTED])
    findings = [
        finding
        for details in detailed.values()
        for finding in partition_findings(details, options)
        if finding.cause is Cause.SLOW_FOLLOWER
    ]
    return [finding_problem(finding, options) for finding in merge_alike(findings)]


def _bulk_facts(cluster: Cluster, progress: Progress) -> Program[ClusterFacts]:
    progress(0, _STEPS)
    status = yield from cluster_status(cluster, spare=False)
    topics = yield from cluster.all_topics(_TOPICS_MAX_AGE_MS)
    progress(1, _STEPS)
    groups = yield from read_groups(cluster)
    facts = ClusterFacts(status, topics, groups, cluster.environment.wall_ms())
    facts.unanswered += [*groups.unanswered, *groups.coordinators]
    progress(2, _STEPS)
    led = [
        TopicPartition(name, index)
        for name, topic in topics.items()
        for index, info in topic.partitions.items()
        if info.leader >= 0
    ]
    for part in slices_of(led, SLICE):
        bounds, unanswered = yield from bounds_of(cluster, part)
        facts.bounds |= bounds
        facts.unanswered += unanswered
    yield from _add_partitions(cluster, facts)
    if groups.share:
        facts.share = yield from read_share_groups(cluster, groups.share, facts.bounds)
    progress(3, _STEPS)
    held = [partition for partition, limits in facts.bounds.items() if limits.held]
    producers = yield from describe_producers(cluster, held, open_only=True)
    scanned = yield from examine(cluster, producers.rows)
    facts.transactions = scanned.transactions
    facts.unanswered += [*producers.unanswered, *scanned.unanswered]
    facts.now_ms = scanned.now_ms
    return facts


def _add_partitions(cluster: Cluster, facts: ClusterFacts) -> Program[None]:
    """Add the partitions that groups use, with the starts of their logs."""
    used = {partition for committed in facts.groups.committed.values() for partition in committed}
    used |= {
        partition
        for described in facts.groups.descriptions.values()
        for member in described.members
        for partition in member.partitions
    }
    missing = sorted({partition.topic for partition in used if partition.topic not in facts.topics})
    # The list of all topics leaves out those that may not be seen; only a request by name tells them from deleted ones.
    gone = (yield from cluster.metadata(missing)) if missing else {}
    hidden = {name for name, topic in gone.items() if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    if hidden:
        facts.unknown.append(f"{counted(len(hidden), 'topic')} of groups that may not be described")
    existing = sorted(partition for partition in used if partition in facts.bounds)
    starts: dict[TopicPartition, int] = {}
    for part in slices_of(existing, SLICE):
        starts |= yield from log_starts(cluster, list(part))
    for partition in used:
        topic = facts.topics.get(partition.topic)
        info = None if topic is None else topic.partitions.get(partition.partition)
        if partition.topic in hidden:
            continue
        if info is None:
            facts.partitions[partition] = PartitionFacts(partition, exists=False)
            continue
        facts.partitions[partition] = PartitionFacts(
            partition,
            leader=info.leader if info.leader >= 0 else None,
            replicas=info.replicas,
            isr=info.isr,
            offline=info.offline,
            log_start=starts.get(partition),
            bounds=facts.bounds.get(partition),
        )


def _findings(facts: GroupFacts, options: str) -> list[Finding]:
    """The causes of one group alone; those of its partitions are lines of their own."""
    gone = [partition for partition in facts.partitions.values() if not partition.exists]
    return [
        *group_findings(facts, options),
        *(finding for partition in gone for finding in partition_findings(partition, options)),
    ]


def _without_progress(
    cluster: Cluster, facts: ClusterFacts, groups: Mapping[str, GroupFacts]
) -> Program[list[GroupFacts]]:
    """Groups with members that have something to read, or move, and that do not advance everywhere."""
    active = {name: group for name, group in groups.items() if group.description.members}
    histories = yield from _histories(cluster, facts, list(active), RECENT_MS)
    suspects = []
    for name, group in active.items():
        history = histories.get(name)
        owned = group.owners
        behind = [partition for partition in owned if group.to_read(partition)]
        is_unsettled = group.description.state in _UNSETTLED or bool(
            history is not None and (history.generations or history.epochs.epochs)
        )
        stands = [p for p in behind if history is None or not history.advances(p, facts.now_ms)]
        has_idle_regex = any(member.regex and not member.target for member in group.description.members)
        if is_unsettled or stands or has_idle_regex or group.uncommitted:
            suspects.append(group)
    return suspects


def _inspect(
    cluster: Cluster, facts: ClusterFacts, suspects: Sequence[GroupFacts], window_ms: int, principal: str | None
) -> Program[None]:
    """Add history to suspects, and to the largest of them the rest of what ``explain group`` reads."""
    histories = yield from _histories(cluster, facts, [group.description.group for group in suspects], window_ms)

    def unread(group: GroupFacts) -> int:
        return sum(group.to_read(partition) for partition in group.partitions)

    for group in suspects:
        group.history = histories.get(group.description.group)
    yield from look_twice(cluster, suspects)
    blind = [group for group in suspects if group.history is None]
    if blind:
        facts.unknown.append(
            f"{counted(len(blind), 'group')} with records to read: whether they advance is not known, because "
            f"{CONSUMER_OFFSETS} could not be read"
        )
    for group in sorted(suspects, key=unread, reverse=True)[:MOST_INSPECTED]:
        group.consumer = yield from consumer_group_facts(cluster, group.description)
        yield from look_into(cluster, group)
        if principal is not None:
            yield from add_permissions(cluster, group, principal)
            if group.no_permissions:
                facts.unknown.append(f"permissions of {principal}: {group.no_permissions}")
    if len(suspects) > MOST_INSPECTED:
        rest = counted(len(suspects) - MOST_INSPECTED, "group")
        facts.unknown.append(f"{rest} with fewer records to read: the next records and quotas; explain one by its name")


def _histories(
    cluster: Cluster, facts: ClusterFacts, groups: Sequence[str], window_ms: int
) -> Program[dict[str, GroupHistory]]:
    """Histories of groups, without those that may not be read or are too much to read."""
    try:
        count = yield from offsets_partition_count(cluster)
    except ClientError:
        return {}
    by_partition: dict[TopicPartition, list[str]] = {}
    for group in groups if count else ():
        partition = TopicPartition(CONSUMER_OFFSETS, coordinator_partition(group, count))
        by_partition.setdefault(partition, []).append(group)
    histories: dict[str, GroupHistory] = {}
    share = max(4 * MIB, HISTORY_BYTES // max(1, len(by_partition)))

    def read(partition: TopicPartition, names: list[str]) -> Program[None]:
        try:
            histories.update((yield from read_histories(cluster, partition, names, facts.now_ms, window_ms, share)))
        except ClientError as error:
            facts.unknown.append(f"recent commits of {counted(len(names), 'group')}: {error}")

    entries = list(by_partition.items())
    for start in range(0, len(entries), _HISTORIES_AT_ONCE):
        yield from parallel(read(*entry) for entry in entries[start : start + _HISTORIES_AT_ONCE])
    return histories


def _users(groups: Mapping[str, GroupFacts], partitions: Iterable[TopicPartition]) -> tuple[str, ...]:
    wanting = set(partitions)
    return tuple(sorted(name for name, group in groups.items() if not wanting.isdisjoint(group.partitions)))


def _coordinators(facts: ClusterFacts, options: str) -> list[Problem]:
    return [
        coordinator_problem(silent.broker, silent.reason, options)
        for silent in facts.groups.coordinators
        if silent.broker is not None and "load" in silent.reason
    ]


def _summary(facts: ClusterFacts, described: GroupDescription) -> GroupSummary:
    committed = facts.groups.committed.get(described.group)
    topics: dict[str, TopicLag] = {}
    group = facts.facts_of(described.group)
    uncommitted = group.uncommitted
    for partition, info in group.partitions.items():
        lag = topics.setdefault(partition.topic, TopicLag())
        lag.partitions += 1
        position = group.committed.get(partition)
        if position is None or info.bounds is None:
            lag.unknown += partition in uncommitted or (position is not None and info.exists)
            continue
        start = max(position, info.log_start or 0)
        lag.lag += max(0, info.bounds.end_offset - start)
        lag.readable += max(0, info.bounds.last_stable_offset - start)
    return GroupSummary(
        described.group,
        described.state,
        described.group_type,
        described.protocol_type,
        described.coordinator,
        len(described.members),
        topics,
        sum((committed or {}).values()),
        committed is not None,
    )


# Groups that wait for transactions


def _waiting_groups(
    cluster: Cluster, facts: ClusterFacts, groups: Mapping[str, GroupFacts]
) -> Program[dict[TopicPartition, dict[str, int]]]:
    """The groups that have read all before a held partition's last stable offset, with their lags."""
    held = {
        transaction.topic_partition: facts.bounds[transaction.topic_partition]
        for transaction in facts.transactions
        if transaction.holds and transaction.topic_partition in facts.bounds
    }
    waiting: dict[TopicPartition, dict[str, int]] = {}
    close: list[tuple[int, TopicPartition, str, int]] = []
    for name, group in groups.items():
        owned = group.owners if held else {}
        for partition, info in group.partitions.items():
            bounds = held.get(partition)
            if bounds is None:
                continue
            position = group.committed.get(partition)
            if position is None:
                # A new group starts at its first offset, or its position is not known here.
                position = info.log_start
                if position is None or partition not in owned:
                    continue
            left = bounds.last_stable_offset - max(position, info.log_start or 0)
            if left == 0:
                waiting.setdefault(partition, {})[name] = bounds.held
            elif left > 0:
                close.append((left, partition, name, position))
    for left, partition, name, position in sorted(close)[:MOST_CLOSE]:
        bounds = held[partition]
        if not (yield from readable_before(cluster, partition, position, bounds.last_stable_offset)):
            waiting.setdefault(partition, {})[name] = bounds.held + left
            group = groups[name]
            group.only_markers |= {partition}
    yield from _add_pending(cluster, facts, groups, waiting)
    return waiting


def _add_pending(
    cluster: Cluster,
    facts: ClusterFacts,
    groups: Mapping[str, GroupFacts],
    waiting: dict[TopicPartition, dict[str, int]],
) -> Program[None]:
    """Add groups whose own offsets are in a transaction that does not end as it should."""
    bad = {
        transaction.topic_partition
        for transaction in facts.transactions
        if transaction.holds and transaction.topic_partition.topic == CONSUMER_OFFSETS
        if verdict_of(transaction) in ("hanging", "suspected", "overdue")
    }
    offsets = facts.topics.get(CONSUMER_OFFSETS)
    count = 0 if offsets is None else len(offsets.partitions)
    candidates = [
        (TopicPartition(CONSUMER_OFFSETS, coordinator_partition(name, count)), name)
        for name in (groups if bad and count else ())
    ]
    candidates = [(partition, name) for partition, name in candidates if partition in bad]
    for partition, name in candidates[:MOST_PENDING]:
        if (yield from pending_offsets(cluster, name, set(groups[name].partitions))):
            waiting.setdefault(partition, {})[name] = 0
    if len(candidates) > MOST_PENDING:
        rest = counted(len(candidates) - MOST_PENDING, "group")
        facts.unknown.append(f"{rest} may have offsets in an open transaction; explain one by its name")
