"""The lines of a report on a whole cluster. Pure."""

# The rule: a transaction that its coordinator will end in time is a note, and only once a group has waited for it for
# LINGERING_MS; so a healthy job that commits every second is never on the list.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from oncelog.admin.cluster_status import BrokerStatus, ClusterStatus, PartitionStatus
from oncelog.admin.explain.cluster_report import CALM_LAST, URGENT_VERDICTS, Problem, owner_of
from oncelog.admin.explain.findings import Cause, Finding, Severity, joined, shortened
from oncelog.admin.transactions.cluster_scan import OpenTransaction
from oncelog.admin.transactions.history.lost_markers import LostMarker
from oncelog.admin.transactions.partition_offsets import Bounds
from oncelog.admin.transactions.report import Held, clears, commands
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


def transaction_problems(
    transactions: Sequence[OpenTransaction],
    waiting: Mapping[TopicPartition, Mapping[str, int]],
    bounds: Mapping[TopicPartition, Bounds],
    now_ms: int,
    options: str,
    lost_markers: Mapping[tuple[TopicPartition, int], LostMarker] | None = None,
) -> list[Problem]:
    """``waiting`` maps a held partition to the groups that have read all before it, with their lags."""
    grouped: dict[tuple[object, ...], list[OpenTransaction]] = {}
    for transaction in transactions:
        grouped.setdefault((verdict_of(transaction), *owner_of(transaction)), []).append(transaction)
    problems = []
    for (verdict, *_), parts in grouped.items():
        groups: dict[str, int] = {}
        for part in parts:
            if part.holds:
                for name, lag in waiting.get(part.topic_partition, {}).items():
                    groups[name] = groups.get(name, 0) + lag
        severity = _severity(str(verdict), parts, bool(groups), now_ms)
        if severity is not None:
            lost = lost_markers or {}
            helds = [
                Held(
                    part.topic_partition,
                    bounds.get(part.topic_partition, Bounds(0, 0)),
                    (part,),
                    now_ms=now_ms,
                    lost=lost.get((part.topic_partition, part.start_offset)),
                )
                for part in parts[:_MOST_COMMANDS]
            ]
            problems.append(_transaction_problem(str(verdict), severity, parts, groups, helds, options))
    return problems


def verdict_of(transaction: OpenTransaction) -> str:
    is_overdue = transaction.verdict is Verdict.LIVE and transaction.overdue_ms > 0
    return "overdue" if is_overdue else transaction.verdict.value


def _severity(verdict: str, parts: Sequence[OpenTransaction], has_waiting: bool, now_ms: int) -> Severity | None:
    if verdict in URGENT_VERDICTS:
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
    helds: Sequence[Held],
    options: str,
) -> Problem:
    first, now_ms = parts[0], helds[0].now_ms
    lost = next((held.lost for held in helds if held.lost is not None), None)
    reason = first.reason
    if lost is not None:
        way_out = [lost.way_out.rstrip(":")] if lost.way_out else []
        reason = " ".join([*lost.sentences, *way_out])
    name, producer_id = first.transactional_id, first.producer.producer_id
    partitions = tuple(part.topic_partition for part in parts)
    more = f" (and so in {counted(len(parts) - 1, 'more partition')})" if len(parts) > 1 else ""
    age_ms = max(age_of(part, now_ms) for part in parts)
    return Problem(
        "transaction",
        name or f"producer {producer_id}",
        Cause.HELD_BY_TRANSACTION if lost is None else Cause.LOST_MARKER,
        severity,
        f"{reason.removesuffix('.')}{more}.",
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


def group_problem(group: str, findings: Sequence[Finding], unread: int, options: str) -> Problem | None:
    """The line of a group: the worst of its causes that are no notes."""
    severities = list(Severity)
    causes = [finding for finding in findings if finding.severity is not Severity.NOTE]
    if not causes:
        return None

    def rank(finding: Finding) -> tuple[int, int]:
        return severities.index(finding.severity), CALM_LAST.index(
            finding.cause
        ) + 1 if finding.cause in CALM_LAST else 0

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
    problems += [
        _broker_problem(broker, options) for broker in status.brokers if broker.is_missed or broker.suspected_by
    ]
    status_command = f"oncelog cluster status{options}"
    if status.lacks_controller:
        text = "The cluster has no controller, or none answers: no leader is elected, and no topic changes."
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
        text += f"Only {missing} may lead without loss." if rows[0].may_lead else f"Replicas: {missing}."
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


def finding_problem(finding: Finding, options: str) -> Problem:
    first = finding.partitions[0]
    return Problem(
        "partitions",
        finding.about,
        finding.cause,
        finding.severity,
        " ".join(finding.sentences),
        f"oncelog explain partition{options} {argument(first.topic)} {first.partition}",
        finding.partitions,
        since_ms=finding.since_ms,
        clears=finding.clears,
        commands=tuple(finding.commands[:_MOST_COMMANDS]),
    )


def _broker_problem(broker: BrokerStatus, options: str) -> Problem:
    reason = f": {broker.error}" if broker.error else ""
    sentences = [f"Broker {broker.broker_id} is {broker.state}, and has {counted(broker.replicas, 'replica')}{reason}."]
    cause, clears = Cause.BROKER_DOWN, "It clears when the broker is back."
    observers = f"broker{'s' if len(broker.suspected_by) > 1 else ''} {joined(list(map(str, broker.suspected_by)))}"
    if broker.suspected_by:
        sentences.append(
            f"For {observers} it is frozen: it accepts connections and answers none. Another broker that agrees ends "
            "its registration, and others lead."
        )
    if not broker.is_missed:
        cause, clears = Cause.BROKER_SUSPECTED, f"It clears by itself when the broker answers {observers} again."
    return Problem(
        "broker",
        f"broker {broker.broker_id}",
        cause,
        Severity.RISK,
        " ".join(sentences),
        f"oncelog cluster status{options}",
        since_ms=broker.suspected_since_ms,
        clears=clears,
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
