"""Findings: possible causes why a group, a partition or a producer is stuck, each with its evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.cluster_scan import HangingRow
from oncelog.base.ids import TopicPartition
from oncelog.base.text import counted

_MOST_NAMES: Final = 50
_FEW_NAMES: Final = 3
_MOST_COMMANDS: Final = 10
Evidence = dict[str, str | int | float | bool | None]


class Severity(StrEnum):
    """How bad a finding is, in report order."""

    STUCK = "stuck"
    """Something is blocked now."""
    RISK = "risk"
    """Something may block, or blocks with the settings of most clients."""
    NOTE = "note"
    """Not a fault, although it may look like one."""


class Cause(StrEnum):
    NO_LEADER = "no-leader"
    UNDER_MIN_ISR = "under-min-isr"
    UNDER_REPLICATED = "under-replicated"
    SLOW_FOLLOWER = "slow-follower"
    TOPIC_GONE = "topic-gone"
    HELD_BY_TRANSACTION = "held-by-transaction"
    PENDING_OFFSETS = "pending-offsets"
    LOST_MARKER = "lost-marker"
    UNFINISHED_TRANSACTION = "unfinished-transaction"
    TIMES_OUT = "times-out-repeatedly"
    ABORTED_AT_TIME_OUT = "aborted-at-time-out"
    UNUSED_IDS = "unused-ids"
    COORDINATOR_UNAVAILABLE = "coordinator-unavailable"
    COORDINATOR_LOADING = "coordinator-loading"
    REBALANCING = "rebalancing"
    PENDING_MEMBER = "pending-member"
    RECONCILING = "reconciling"
    REBALANCES_REPEATEDLY = "rebalances-repeatedly"
    HOLDS_PARTITIONS = "holds-partitions"
    CLASSIC_MEMBER_HOLDS_UP = "classic-member-holds-up"
    STATIC_MEMBER_AWAY = "static-member-away"
    REGEX_MATCHES_NOTHING = "regex-matches-nothing"
    REGEX_HIDDEN_TOPICS = "regex-hidden-topics"
    RECORDS_TOO_LARGE = "records-too-large"
    ASSIGNOR_NOT_SUPPORTED = "assignor-not-supported"
    CONVERSION_REFUSED = "conversion-refused"
    OTHER_GROUP_TYPE = "other-group-type"
    SHARE_GROUPS_OFF = "share-groups-off"
    HOLDS_RECORDS = "holds-records"
    LOCKS_EXPIRE = "locks-expire"
    REDELIVERED_REPEATEDLY = "redelivered-repeatedly"
    RECORDS_ARCHIVED = "records-archived"
    WAITS_FOR_RECORD = "waits-for-record"
    TOO_MANY_IN_FLIGHT = "too-many-in-flight"
    DEAD_LETTERS_LOST = "dead-letters-lost"
    NOTHING_ACQUIRED = "nothing-acquired"
    NO_MEMBERS = "no-members"
    NOT_ASSIGNED = "not-assigned"
    NOTHING_COMMITTED = "nothing-committed"
    BEHIND_RETENTION = "behind-retention"
    BEYOND_END = "beyond-end"
    MEMBER_DOES_NOT_COMMIT = "member-does-not-commit"
    PARTITION_DOES_NOT_ADVANCE = "partition-does-not-advance"
    LARGE_BATCH = "large-batch"
    QUOTA = "quota"
    NOT_PERMITTED = "not-permitted"
    COMPACTED_HOLE = "compacted-hole"
    ONLY_MARKERS_LEFT = "only-markers-left"
    READS_UNCOMMITTED = "reads-uncommitted"
    BROKER_DOWN = "broker-down"
    BROKER_SUSPECTED = "broker-suspected"
    DIRECTORY_OFFLINE = "directory-offline"
    NO_CONTROLLER = "no-controller"
    BUSY = "busy"
    IDLE = "idle"
    FINE = "fine"


_OF_REPLICAS: Final = frozenset(
    {Cause.NO_LEADER, Cause.UNDER_MIN_ISR, Cause.UNDER_REPLICATED, Cause.SLOW_FOLLOWER, Cause.TOPIC_GONE}
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause. ``about`` is the partition, group or member that it concerns; ``sentences`` lead from symptom to
    cause. ``partitions`` are those that it concerns, ``groups`` those that its sentences name.

    ``since_ms`` is when it began, None if unknown; ``no_since`` says why, for causes with a beginning. ``affected``
    names what else is blocked, ``clears`` when it ends by itself. ``advice`` introduces ``commands``.
    """

    cause: Cause
    severity: Severity
    about: str
    sentences: list[str]
    evidence: Evidence = field(default_factory=dict)
    since_ms: int | None = None
    no_since: str = ""
    affected: list[str] = field(default_factory=list)
    clears: str = ""
    advice: str = ""
    commands: list[str] = field(default_factory=list)
    partitions: tuple[TopicPartition, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """All findings about a subject, worst first.

    ``summary`` is the report's first sentence. ``happened`` tells recent changes of a group. ``unknown`` lists open
    questions, each with the means to answer it. ``transactions`` are those behind HELD_BY_TRANSACTION.
    """

    subject: str
    summary: str
    findings: list[Finding]
    unknown: list[str] = field(default_factory=list)
    transactions: list[HangingRow] = field(default_factory=list)
    unanswered: list[Unanswered] = field(default_factory=list)
    happened: list[str] = field(default_factory=list)

    @property
    def is_stuck(self) -> bool:
        return any(finding.severity is Severity.STUCK for finding in self.findings)


def worst_first(findings: list[Finding]) -> list[Finding]:
    order = list(Severity)
    return sorted(merge_alike(findings), key=lambda finding: order.index(finding.severity))


def merge_alike(findings: Iterable[Finding]) -> list[Finding]:
    """One finding for all partitions with the same cause and the same end; others stay as they are."""
    merged: dict[tuple[object, ...], list[Finding]] = {}
    for index, finding in enumerate(findings):
        is_single = len(finding.partitions) == 1 and finding.about == str(finding.partitions[0])
        may_merge = is_single and (finding.cause in _OF_REPLICAS or finding.severity is Severity.NOTE)
        key: tuple[object, ...] = (finding.cause, finding.severity, finding.clears) if may_merge else (index,)
        owner = finding.evidence.get("producer_id")
        if finding.cause is Cause.HELD_BY_TRANSACTION and is_single and owner is not None:
            key = (finding.cause, finding.severity, owner, finding.evidence["verdict"])
        merged.setdefault(key, []).append(finding)
    return [_merged(alike) for alike in merged.values()]


def _merged(alike: list[Finding]) -> Finding:
    first, *others = alike
    if not others:
        return first
    partitions = tuple(sorted({partition for finding in alike for partition in finding.partitions}))
    names = shortened([finding.about for finding in others], _MOST_NAMES)
    since = [finding.since_ms for finding in alike if finding.since_ms is not None]
    return replace(
        first,
        about=shortened(partitions, _FEW_NAMES),
        sentences=[*first.sentences, f"The same holds for {counted(len(others), 'more partition')}: {names}."],
        evidence=first.evidence | {"partitions": len(partitions)},
        since_ms=min(since) if since else None,
        affected=list(dict.fromkeys(name for finding in alike for name in finding.affected)),
        commands=list(dict.fromkeys(line for finding in alike for line in finding.commands))[:_MOST_COMMANDS],
        partitions=partitions,
        groups=tuple(dict.fromkeys(name for finding in alike for name in finding.groups)),
    )


def with_partitions(findings: Iterable[Finding], partitions: Iterable[TopicPartition]) -> list[Finding]:
    by_name = {str(partition): partition for partition in partitions}
    return [
        replace(finding, partitions=(by_name[finding.about],)) if finding.about in by_name else finding
        for finding in findings
    ]


def joined(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return "".join(names) if len(names) < 2 else f"{', '.join(names[:-1])} and {names[-1]}"


def shortened(names: Sequence[object], most: int = 5) -> str:
    text = ", ".join(map(str, names[:most]))
    return text if len(names) <= most else f"{text} and {len(names) - most} more"


def kafka_options(options: str) -> str:
    """The cluster options for one of Apache Kafka's tools, which have no default server."""
    # " -X …" stands for options that have no equal in Apache Kafka's tools.
    given = options.removesuffix(" -X …").replace("--bootstrap-servers", "--bootstrap-server")
    return given if "--bootstrap-server" in given else f" --bootstrap-server localhost:9092{given}"
