"""Everything that is wrong in a cluster, one line for each transaction, group, broker, or set of partitions. Pure.

The rules: all lines are sorted before any is left out; hanging transactions are first. Counts are of groups and
transactions, not of lines. A transaction that its coordinator will end in time is a note, and only once a group has
waited for it for ``LINGERING_MS``; so a healthy job that commits every second is never on the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from oncelog.admin.cluster_status import BrokerStatus, ClusterStatus, PartitionStatus
from oncelog.admin.explain.findings import Cause, Finding, Severity, joined, shortened
from oncelog.admin.transactions.cluster_scan import HangingRow, OpenTransaction
from oncelog.admin.transactions.partition_offsets import Bounds
from oncelog.admin.transactions.report import Held, Retention, clears, commands
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.notation.shell_words import argument
from oncelog.base.text import counted
from oncelog.base.transaction_verdicts import Verdict
from oncelog.base.units import MINUTE_MS, SECOND_MS

LINGERING_MS: Final = 30 * SECOND_MS
"""The age from which a transaction that groups wait for is a note."""
PREPARED_MS: Final = 15 * MINUTE_MS
"""The age from which a prepared transaction is a risk: any other would have been aborted by then."""
_MOST_COMMANDS: Final = 3
_CLASSES: Final = ("hanging", "suspected", "overdue")
_CALM: Final = frozenset({Cause.NO_MEMBERS, Cause.REBALANCING, Cause.TOPIC_GONE})
"""Causes that block a group and may be meant, or pass: they come last, and in another colour."""
_ORDER: Final = (
    *(Cause.HELD_BY_TRANSACTION, Cause.PENDING_OFFSETS, Cause.NO_LEADER, Cause.NO_CONTROLLER, Cause.UNDER_MIN_ISR),
    *(Cause.DIRECTORY_OFFLINE, Cause.BROKER_DOWN, Cause.COORDINATOR_LOADING),
)
_LAST: Final = (Cause.TOPIC_GONE, Cause.REBALANCING, Cause.NO_MEMBERS)


@dataclass(frozen=True, slots=True)
class Problem:
    """One line. ``kind`` is "transaction", "group", "partitions" or "broker"; ``groups`` are those that wait for it.

    ``verdict`` is that of a transaction, "overdue" for one that outlasts its time-out. ``more`` counts further causes
    of the same group. ``explain`` is the command that tells the rest.
    """

    kind: str
    name: str
    cause: Cause
    severity: Severity
    text: str
    explain: str
    partitions: tuple[TopicPartition, ...] = ()
    groups: tuple[str, ...] = ()
    since_ms: int | None = None
    clears: str = ""
    commands: tuple[str, ...] = ()
    verdict: str | None = None
    transaction: HangingRow | None = None
    more: int = 0
    unread: int = 0
    """Offsets that wait: of the group, or of all that wait for the transaction."""

    @property
    def is_urgent(self) -> bool:
        return self.severity is Severity.STUCK and self.cause not in _CALM


@dataclass(slots=True)
class TopicLag:
    """A group's lag in one topic. ``unknown`` counts assigned partitions with records and without a commit."""

    partitions: int = 0
    lag: int = 0
    readable: int = 0
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group in a list: ``lag`` to the ends, ``readable`` to the last stable offsets, both without ``unknown``
    partitions; ``position`` is the sum of its offsets. ``is_counted`` is False if its offsets were not answered.
    """

    group: str
    state: str
    group_type: str
    protocol_type: str
    coordinator: int
    members: int
    topics: Mapping[str, TopicLag]
    position: int = 0
    is_counted: bool = True

    @property
    def lag(self) -> int:
        return sum(topic.lag for topic in self.topics.values())

    @property
    def readable(self) -> int:
        return sum(topic.readable for topic in self.topics.values())

    @property
    def unknown(self) -> int:
        return sum(topic.unknown for topic in self.topics.values())


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """``problems``, worst first; ``counts`` of what they are; ``unknown`` lists what could not be looked at."""

    summary: str
    problems: list[Problem]
    counts: Mapping[str, int]
    unknown: list[str]
    status: ClusterStatus
    groups: list[GroupSummary] = field(default_factory=list)
    now_ms: int = 0

    @property
    def is_stuck(self) -> bool:
        return any(problem.severity is Severity.STUCK for problem in self.problems)


def report_of(
    status: ClusterStatus,
    transactions: Sequence[OpenTransaction],
    problems: Iterable[Problem],
    groups: list[GroupSummary],
    unknown: list[str],
    now_ms: int,
) -> ClusterReport:
    listed = worst_problems_first(problems)
    counts = _counts(status, transactions, listed, len(groups))
    return ClusterReport(_summary(status, listed, counts, unknown), listed, counts, unknown, status, groups, now_ms)


def worst_problems_first(problems: Iterable[Problem]) -> list[Problem]:
    severities = list(Severity)

    def key(problem: Problem) -> tuple[int, int, int, int, int, str]:
        verdict = _CLASSES.index(problem.verdict) if problem.verdict in _CLASSES else len(_CLASSES)
        rank = _ORDER.index(problem.cause) if problem.cause in _ORDER else len(_ORDER)
        if problem.cause in _LAST:
            rank = len(_ORDER) + 1 + _LAST.index(problem.cause)
        return severities.index(problem.severity), verdict, rank, -len(problem.groups), -problem.unread, problem.name

    return sorted(problems, key=key)


def _counts(
    status: ClusterStatus, transactions: Sequence[OpenTransaction], problems: list[Problem], groups: int
) -> dict[str, int]:
    """Numbers of transactions by verdict, each with all its partitions, and of groups, each with all its causes."""
    owners: dict[str, set[object]] = {verdict.value: set() for verdict in Verdict}
    for transaction in transactions:
        owners[transaction.verdict.value].add(_owner(transaction))
    stuck = {name for problem in problems if problem.is_urgent for name in problem.groups}
    stuck |= {problem.name for problem in problems if problem.is_urgent and problem.kind == "group"}
    idle = {problem.name for problem in problems if problem.cause is Cause.NO_MEMBERS} - stuck
    waiting = {name for problem in problems if problem.severity is not Severity.STUCK for name in problem.groups}
    return {
        **{verdict: len(named) for verdict, named in owners.items()},
        "overdue": sum(problem.verdict == "overdue" for problem in problems),
        "groups": groups,
        "groups_stuck": len(stuck),
        "groups_without_members": len(idle),
        "groups_waiting": len(waiting - stuck),
        "without_leader": len(status.without_leader),
        "under_min_isr": len(status.under_min_isr),
        "under_replicated": len(status.under_replicated),
        "brokers": len(status.brokers),
        "brokers_up": sum(broker.state == "up" for broker in status.brokers),
        "wrong": sum(problem.severity is not Severity.NOTE for problem in problems),
        "urgent": sum(problem.is_urgent for problem in problems),
    }


def _summary(status: ClusterStatus, problems: list[Problem], counts: Mapping[str, int], unknown: list[str]) -> str:
    parts = []
    for verdict in (*_CLASSES, "two_phase"):
        number = sum(problem.verdict == verdict for problem in problems)
        if number:
            parts.append(f"{counted(number, verdict.replace('_', '-') + ' transaction')}")
    for name, noun in (("groups_stuck", "stuck group"), ("groups_without_members", "group")):
        if counts[name]:
            without = " without members that has records to read" if name == "groups_without_members" else ""
            parts.append(counted(counts[name], noun) + without.replace("has", "has" if counts[name] == 1 else "have"))
    calm = sum(problem.severity is Severity.STUCK and not problem.is_urgent for problem in problems)
    if calm > counts["groups_without_members"]:
        parts.append(counted(calm - counts["groups_without_members"], "group") + " with a passing cause")
    parts += status.problems
    if parts:
        return f"{joined(parts)}."
    size = f"{counted(counts['groups'], 'group')}, {counted(status.topics, 'topic')}"
    text = f"Nothing is stuck in {size} and {counted(counts['brokers'], 'broker')}"
    return f"{text}, as far as could be seen." if unknown else f"{text}."


# Transactions


def _owner(transaction: OpenTransaction) -> tuple[object, ...]:
    return transaction.transactional_id, transaction.producer.producer_id, transaction.producer.producer_epoch


def transaction_problems(
    transactions: Sequence[OpenTransaction],
    waiting: Mapping[TopicPartition, Mapping[str, int]],
    bounds: Mapping[TopicPartition, Bounds],
    now_ms: int,
    options: str,
) -> list[Problem]:
    """``waiting`` maps a held partition to the groups that have read all before it, with their lags."""
    grouped: dict[tuple[object, ...], list[OpenTransaction]] = {}
    for transaction in transactions:
        grouped.setdefault((verdict_of(transaction), *_owner(transaction)), []).append(transaction)
    problems = []
    for (verdict, *_), parts in grouped.items():
        groups: dict[str, int] = {}
        for part in parts:
            if part.holds:
                for name, lag in waiting.get(part.topic_partition, {}).items():
                    groups[name] = groups.get(name, 0) + lag
        severity = _severity(str(verdict), parts, bool(groups), now_ms)
        if severity is not None:
            problems.append(_transaction_problem(str(verdict), severity, parts, groups, bounds, now_ms, options))
    return problems


def verdict_of(transaction: OpenTransaction) -> str:
    is_overdue = transaction.verdict is Verdict.LIVE and transaction.overdue_ms > 0
    return "overdue" if is_overdue else transaction.verdict.value


def _severity(verdict: str, parts: Sequence[OpenTransaction], has_waiting: bool, now_ms: int) -> Severity | None:
    if verdict in _CLASSES:
        return Severity.STUCK
    age_ms = max(age_of(part, now_ms) for part in parts)
    if verdict == Verdict.TWO_PHASE.value and age_ms >= PREPARED_MS:
        return Severity.RISK
    return Severity.NOTE if has_waiting and age_ms >= LINGERING_MS else None


def age_of(transaction: OpenTransaction, now_ms: int) -> int:
    """The age on the coordinator's clock where it has one: records may have the times of events long past."""
    if transaction.row is not None and transaction.row.start_ms is not None and not transaction.is_confirmed:
        return now_ms - transaction.row.start_ms
    return transaction.age_ms or 0


def _transaction_problem(
    verdict: str,
    severity: Severity,
    parts: Sequence[OpenTransaction],
    groups: Mapping[str, int],
    bounds: Mapping[TopicPartition, Bounds],
    now_ms: int,
    options: str,
) -> Problem:
    first = parts[0]
    helds = [
        Held(part.topic_partition, bounds.get(part.topic_partition, Bounds(0, 0)), (part,), (), Retention(), now_ms)
        for part in parts[:_MOST_COMMANDS]
    ]
    name, producer_id = first.transactional_id, first.producer.producer_id
    partitions = tuple(part.topic_partition for part in parts)
    more = f" (and so in {counted(len(parts) - 1, 'more partition')})" if len(parts) > 1 else ""
    age_ms = max(age_of(part, now_ms) for part in parts)
    return Problem(
        "transaction",
        name or f"producer {producer_id}",
        Cause.HELD_BY_TRANSACTION,
        severity,
        f"{first.reason}{more}.",
        f"oncelog explain partition{options} {argument(first.producer.topic)} {first.producer.partition}",
        partitions,
        tuple(sorted(groups, key=lambda group: (-groups[group], group))),
        now_ms - age_ms if age_ms else None,
        clears(helds[0]),
        tuple(command for held in helds for command in commands(held, options)[:1]),
        verdict,
        first.as_row(),
        unread=sum(groups.values()),
    )


# Groups


def group_problem(group: str, findings: Sequence[Finding], unread: int, options: str) -> Problem | None:
    """The line of a group: the worst of its causes that are no notes."""
    severities = list(Severity)
    causes = [finding for finding in findings if finding.severity is not Severity.NOTE]
    if not causes:
        return None

    def rank(finding: Finding) -> tuple[int, int]:
        return severities.index(finding.severity), _LAST.index(finding.cause) + 1 if finding.cause in _LAST else 0

    worst = min(causes, key=rank)
    alike = [finding for finding in causes if finding.cause is worst.cause]
    since = [finding.since_ms for finding in alike if finding.since_ms is not None]
    partitions = {partition for finding in alike for partition in finding.partitions}
    more = f" (and so in {len(alike) - 1} more)" if len(alike) > 1 else ""
    return Problem(
        "group",
        group,
        worst.cause,
        worst.severity,
        f"{worst.sentences[0]}{more}",
        f"oncelog explain group{options} {argument(group)}",
        tuple(sorted(partitions)),
        since_ms=min(since) if since else None,
        clears=worst.clears,
        commands=tuple(worst.commands[:_MOST_COMMANDS]),
        more=len({finding.cause for finding in causes}) - 1,
        unread=unread,
    )


# Partitions and brokers


def status_problems(
    status: ClusterStatus, users: Callable[[Sequence[TopicPartition]], tuple[str, ...]], options: str
) -> list[Problem]:
    """Partitions that lack the same brokers are one line. ``users`` are the groups of partitions."""
    leaderless = status.without_leader
    under = [row for row in status.under_min_isr if row.has_leader]
    listed = {(row.topic, row.partition) for row in under}
    lacking = [row for row in status.under_replicated if row.has_leader and (row.topic, row.partition) not in listed]
    problems = []
    for cause, severity, rows in (
        (Cause.NO_LEADER, Severity.STUCK, leaderless),
        (Cause.UNDER_MIN_ISR, Severity.STUCK, under),
        (Cause.UNDER_REPLICATED, Severity.RISK, lacking),
    ):
        for lost, alike in _by_lost(rows).items():
            problems.append(_partitions_problem(cause, severity, lost, alike, users, options))
    problems += [_broker_problem(broker, options) for broker in status.brokers if broker.is_missed]
    status_command = f"oncelog cluster status{options}"
    if status.lacks_controller:
        text = "The cluster has no controller: no leader is elected, and no topic changes."
        problems.append(Problem("broker", "controller", Cause.NO_CONTROLLER, Severity.STUCK, text, status_command))
    problems += [
        Problem(
            "broker",
            f"broker {row.broker_id}",
            Cause.DIRECTORY_OFFLINE,
            Severity.RISK,
            f"{row.directory} of broker {row.broker_id} is offline: {row.error}.",
            status_command,
        )
        for row in status.offline_directories
    ]
    return problems


def _by_lost(rows: Sequence[PartitionStatus]) -> dict[tuple[int, ...], list[PartitionStatus]]:
    lost: dict[tuple[int, ...], list[PartitionStatus]] = {}
    for row in rows:
        missing = tuple(sorted(set(row.replicas) - set(row.isr) if row.has_leader else row.may_lead or row.replicas))
        lost.setdefault(missing, []).append(row)
    return lost


def _partitions_problem(
    cause: Cause,
    severity: Severity,
    lost: tuple[int, ...],
    rows: Sequence[PartitionStatus],
    users: Callable[[Sequence[TopicPartition]], tuple[str, ...]],
    options: str,
) -> Problem:
    partitions = tuple(TopicPartition(TopicName(row.topic), row.partition) for row in rows)
    first, names = partitions[0], shortened(partitions, 3)
    verb, brokers = ("has" if len(rows) == 1 else "have"), joined([str(broker) for broker in lost])
    missing = f"broker{'s' if len(lost) != 1 else ''} {brokers}"
    if cause is Cause.NO_LEADER:
        text = f"{names} {verb} no leader, and can neither be written nor read. "
        text += f"Without loss {missing} may lead." if rows[0].may_lead else f"Replicas: {missing}."
    elif cause is Cause.UNDER_MIN_ISR:
        in_sync, needed = len(rows[0].isr), rows[0].min_isr
        text = (
            f"{names} {verb} fewer replicas in sync than min.insync.replicas (here {in_sync} of {needed}): acks=all is "
            f"refused. Not in sync: {missing}."
        )
    else:
        text = f"{names} {verb} a replica that is not in sync: {missing}."
    return Problem(
        "partitions",
        names,
        cause,
        severity,
        text,
        f"oncelog explain partition{options} {argument(first.topic)} {first.partition}",
        partitions,
        users(partitions) if severity is Severity.STUCK else (),
        clears=f"It clears by itself when {missing} {'is' if len(lost) == 1 else 'are'} back and in sync.",
        commands=(f"oncelog cluster status{options}",),
    )


def _broker_problem(broker: BrokerStatus, options: str) -> Problem:
    reason = f": {broker.error}" if broker.error else ""
    return Problem(
        "broker",
        f"broker {broker.broker_id}",
        Cause.BROKER_DOWN,
        Severity.RISK,
        f"Broker {broker.broker_id} is {broker.state}, and has {counted(broker.replicas, 'replica')}{reason}.",
        f"oncelog cluster status{options}",
        clears="It clears when the broker is back.",
    )


def coordinator_problem(broker: int, reason: str, options: str) -> Problem:
    return Problem(
        "broker",
        f"broker {broker}",
        Cause.COORDINATOR_LOADING,
        Severity.STUCK,
        f"Broker {broker} does not list the groups that it coordinates: {reason}. They are not on this list.",
        f"oncelog cluster status{options}",
        clears="It clears by itself when the broker has read its log.",
    )
