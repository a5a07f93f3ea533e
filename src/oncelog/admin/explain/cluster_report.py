"""The report on a whole cluster: lines in their order, counts, summary. Pure.

The rules: all lines are sorted before any is left out; hanging transactions are first. Counts are of groups and
transactions, not of lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from oncelog.admin.cluster_status import ClusterStatus
from oncelog.admin.explain.findings import Cause, Severity, joined
from oncelog.admin.explain.id_facts import IdFacts
from oncelog.admin.transactions.cluster_scan import HangingRow, OpenTransaction
from oncelog.base.ids import TopicPartition
from oncelog.base.text import counted
from oncelog.base.transaction_verdicts import Verdict

URGENT_VERDICTS: Final = ("hanging", "suspected", "overdue")
_CALM: Final = frozenset({Cause.NO_MEMBERS, Cause.REBALANCING, Cause.TOPIC_GONE})
"""Causes that block a group and may be meant, or pass: they come last, and in another colour."""
_ORDER: Final = (
    *(Cause.LOST_MARKER, Cause.HELD_BY_TRANSACTION, Cause.PENDING_OFFSETS),
    *(Cause.NO_LEADER, Cause.NO_CONTROLLER, Cause.UNDER_MIN_ISR),
    *(Cause.UNFINISHED_TRANSACTION, Cause.DIRECTORY_OFFLINE, Cause.BROKER_DOWN),
    *(Cause.BROKER_SUSPECTED, Cause.COORDINATOR_LOADING),
)
CALM_LAST: Final = (Cause.TOPIC_GONE, Cause.REBALANCING, Cause.NO_MEMBERS)


_IDS: Final = {
    Cause.UNFINISHED_TRANSACTION: "unfinished transaction",
    Cause.TIMES_OUT: "producer that times out repeatedly",
    Cause.UNUSED_IDS: "pattern of unused transactional ids",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One line. ``kind`` is "transaction", "group", "partitions", "broker", "id" (a transactional id) or "ids" (their
    pattern); ``groups`` are those that wait for it.

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
    id_facts: IdFacts = field(default_factory=IdFacts)

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
    id_facts: IdFacts | None = None,
) -> ClusterReport:
    listed = worst_problems_first(problems)
    counts = _counts(status, transactions, listed, len(groups))
    summary = _summary(status, listed, counts, unknown)
    return ClusterReport(summary, listed, counts, unknown, status, groups, now_ms, id_facts or IdFacts())


def worst_problems_first(problems: Iterable[Problem]) -> list[Problem]:
    severities = list(Severity)

    def key(problem: Problem) -> tuple[int, int, int, int, int, str]:
        verdict = URGENT_VERDICTS.index(problem.verdict) if problem.verdict in URGENT_VERDICTS else len(URGENT_VERDICTS)
        rank = _ORDER.index(problem.cause) if problem.cause in _ORDER else len(_ORDER)
        if problem.cause in CALM_LAST:
            rank = len(_ORDER) + 1 + CALM_LAST.index(problem.cause)
        return severities.index(problem.severity), verdict, rank, -len(problem.groups), -problem.unread, problem.name

    return sorted(problems, key=key)


def _counts(
    status: ClusterStatus, transactions: Sequence[OpenTransaction], problems: list[Problem], groups: int
) -> dict[str, int]:
    """Numbers of transactions by verdict, each with all its partitions, and of groups, each with all its causes."""
    owners: dict[str, set[object]] = {verdict.value: set() for verdict in Verdict}
    for transaction in transactions:
        owners[transaction.verdict.value].add(owner_of(transaction))
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
    for verdict in (*URGENT_VERDICTS, "two_phase"):
        number = sum(problem.verdict == verdict for problem in problems)
        if number:
            parts.append(f"{counted(number, verdict.replace('_', '-') + ' transaction')}")
    for name, noun in (("groups_stuck", "stuck group"), ("groups_without_members", "group")):
        if counts[name]:
            without = " without members that has records to read" if name == "groups_without_members" else ""
            parts.append(counted(counts[name], noun) + without.replace("has", "has" if counts[name] == 1 else "have"))
    for cause, noun in _IDS.items():
        if number := sum(problem.cause is cause for problem in problems):
            parts.append(counted(number, noun))
    calm = sum(problem.severity is Severity.STUCK and not problem.is_urgent for problem in problems)
    if calm > counts["groups_without_members"]:
        parts.append(counted(calm - counts["groups_without_members"], "group") + " with a passing cause")
    parts += status.problems
    if parts:
        return f"{joined(parts)}."
    size = f"{counted(counts['groups'], 'group')}, {counted(status.topics, 'topic')}"
    text = f"Nothing is stuck in {size} and {counted(counts['brokers'], 'broker')}"
    return f"{text}, as far as could be seen." if unknown else f"{text}."


def owner_of(transaction: OpenTransaction) -> tuple[object, ...]:
    return transaction.transactional_id, transaction.producer.producer_id, transaction.producer.producer_epoch
