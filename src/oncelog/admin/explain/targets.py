"""Explains a group, topic, partition, producer or transactional id: queries the cluster, compares, and reports.

A group whose coordinator does not answer is explained from its offsets partition. If the subject does not exist, raises
BrokerRefused (GROUP_ID_NOT_FOUND, TRANSACTIONAL_ID_NOT_FOUND) or UnknownTopic.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from oncelog.admin.explain.consumer_group_history import history_sentences
from oncelog.admin.explain.findings import Cause, Finding, Report, Severity, shortened, worst_first
from oncelog.admin.explain.group_causes import group_findings
from oncelog.admin.explain.group_facts import GroupFacts, group_facts
from oncelog.admin.explain.group_history import WINDOW_MS
from oncelog.admin.explain.held_partitions import held_finding
from oncelog.admin.explain.partition_causes import partition_findings
from oncelog.admin.explain.partition_facts import PartitionFacts, partition_facts
from oncelog.admin.explain.pending_members import look_twice
from oncelog.admin.explain.share_groups.report import explain_share_group
from oncelog.admin.explain.subscription_causes import open_questions
from oncelog.admin.explain.time_outs import time_out_findings
from oncelog.admin.group_descriptions import describe_group
from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.cluster_scan import HangingRow, Scope, partitions_of, scan
from oncelog.admin.transactions.coordinator_log import read_coordinator_log
from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.admin.transactions.explanations import (
    Explanation,
    explain_held,
    explain_id,
    group_pending,
    offsets_partition,
)
from oncelog.admin.transactions.producers import ProducerRow, describe_producers
from oncelog.admin.transactions.transactional_ids import ListFilter, describe_transactions, list_transactions
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CONSUMER_OFFSETS, TopicName, TopicPartition
from oncelog.base.text import counted
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.client.programs import Cluster, Program, operation

__all__ = [
    "Cause",
    "Finding",
    "Report",
    "Severity",
    "explain_group",
    "explain_producer",
    "explain_topic",
    "explain_txn",
]

_MOST_PARTITIONS: Final = 20
"""The most partitions named for a producer."""
NO_COORDINATOR: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
"""Errors that mean no coordinator answers for a group."""
_NO_TIME: Final = "no request tells it; the logs of the brokers do"


@operation
def explain_group(
    cluster: Cluster, group: str, *, window_ms: int = WINDOW_MS, principal: str | None = None, options: str = ""
) -> Program[Report]:
    """Explain why a group does not advance. ``principal`` is the identity of its members (``User:alice``), to check
    their permissions. Raises BrokerRefused with GROUP_ID_NOT_FOUND.
    """
    try:
        described = yield from describe_group(cluster, group)
        if described.is_share:
            return (
                yield from explain_share_group(
                    cluster, described, window_ms=window_ms, principal=principal, options=options
                )
            )
        facts, unanswered = yield from group_facts(cluster, described, window_ms=window_ms, principal=principal)
    except BrokerRefused as error:
        if error.code not in NO_COORDINATOR:
            raise
        return (yield from without_coordinator(cluster, group, error, options))
    yield from look_twice(cluster, [facts])
    findings = group_findings(facts, options)
    findings += [
        finding for partition in facts.partitions.values() for finding in partition_findings(partition, options)
    ]
    held = _held(facts.partitions, facts.committed)
    bounds = {tp: partition.bounds for tp, partition in facts.partitions.items() if partition.bounds is not None}
    waits, offsets = yield from group_pending(cluster, group, set(facts.partitions), bounds)
    explained = yield from explain_held(cluster, f"group {group}", [*held, *offsets], bounds, [], [], options)
    if waits:
        holding = [transaction for transaction in explained.transactions if transaction.topic == CONSUMER_OFFSETS]
        findings.append(_pending(group, waits, holding, facts.now_ms, options))
    findings += [held_finding(chain, _reads_before(facts, chain.about)) for chain in explained.chains]
    return Report(
        f"group {group}",
        _group_summary(facts, findings),
        worst_first(findings),
        _unknown_of_group(facts, principal),
        explained.transactions,
        list(dict.fromkeys([*unanswered, *explained.unanswered])),
        history_sentences(facts.epochs),
    )


@operation
def explain_topic(cluster: Cluster, topic: str, partition: int | None = None, *, options: str = "") -> Program[Report]:
    """Explain why a topic, or one partition of it, cannot be written or read to its end. Raises UnknownTopic."""
    single = () if partition is None else (TopicPartition(TopicName(topic), partition),)
    selected = yield from partitions_of(cluster, Scope((topic,) if partition is None else (), single))
    subject = f"topic {topic}" if partition is None else f"partition {partition} of topic {topic}"
    facts, unanswered = yield from partition_facts(cluster, selected)
    findings = [partition_finding for fact in facts.values() for partition_finding in partition_findings(fact, options)]
    explained = yield from _explain_held(cluster, subject, facts, options)
    findings += [held_finding(chain) for chain in explained.chains]
    stopped = len({finding.about for finding in findings if finding.severity is Severity.STUCK})
    if stopped:
        summary = f"{counted(stopped, 'partition')} of {len(selected)} cannot be written, or read to the end."
    elif unanswered or explained.unanswered:
        summary = "Nothing is stuck among the partitions that answered; not all did."
    else:
        all_of_it = "It" if len(selected) == 1 else f"All {len(selected)} partitions"
        summary = f"{all_of_it} can be written, and read to the end."
    return Report(
        subject,
        summary,
        worst_first(findings),
        [],
        explained.transactions,
        list(dict.fromkeys([*unanswered, *explained.unanswered])),
    )


@operation
def explain_txn(cluster: Cluster, transactional_id: str, *, options: str = "") -> Program[Report]:
    """Explain what a transactional id is doing, and what it holds. Raises BrokerRefused if no coordinator knows it."""
    report = _of_transactions((yield from explain_id(cluster, transactional_id, options=options)))
    row = (yield from describe_transactions(cluster, [transactional_id])).rows.get(transactional_id)
    if row is None:
        return report
    identity = row.producer_id, row.producer_epoch
    log = yield from read_coordinator_log(cluster, transactional_id, identity)
    findings = time_out_findings(row, log.transactions, cluster.environment.wall_ms(), options)
    unknown = [] if log.problem is None else [f"How its earlier transactions ended: {log.problem}."]
    return replace(report, findings=worst_first([*report.findings, *findings]), unknown=[*report.unknown, *unknown])


@operation
def explain_producer(cluster: Cluster, producer_id: int, *, options: str = "") -> Program[Report]:
    """Explain what a producer id is, its open transactions, and what waits for them. An unknown id is reported."""
    listing = yield from list_transactions(cluster, ListFilter(producer_ids=(producer_id,)))
    # A coordinator knows its id, which says more than the producer id.
    if listing.rows:
        return (yield from explain_txn(cluster, listing.rows[0].transactional_id, options=options))
    subject = f"producer id {producer_id}"
    open_transactions = yield from scan(cluster)
    held = sorted(
        {
            transaction.topic_partition
            for transaction in open_transactions.transactions
            if transaction.producer.producer_id == producer_id
        }
    )
    unanswered = [*listing.unanswered, *open_transactions.unanswered]
    if held:
        facts, silent = yield from partition_facts(cluster, held)
        explained = yield from _explain_held(cluster, subject, facts, options)
        findings = [held_finding(chain) for chain in explained.chains]
        summary = f"No coordinator has producer id {producer_id}, and it has {counted(len(held), 'transaction')} open."
        return Report(subject, summary, worst_first(findings), [], explained.transactions, [*unanswered, *silent])
    # No transaction is open: ask all leaders what they remember of the producer.
    all_partitions = yield from partitions_of(cluster, Scope())
    remembered = yield from describe_producers(cluster, all_partitions)
    rows = [row for row in remembered.rows if row.producer_id == producer_id]
    return Report(subject, _producer_summary(producer_id, rows), [], [], [], unanswered)


def _producer_summary(producer_id: int, rows: list[ProducerRow]) -> str:
    if not rows:
        return (
            f"No partition and no coordinator knows producer id {producer_id}: it never wrote, or it wrote nothing for "
            "producer.id.expiration.ms (by default a day) and was forgotten. Nothing waits for it."
        )
    last = max(rows, key=lambda row: row.last_timestamp_ms)
    places = shortened([row.topic_partition for row in rows], _MOST_PARTITIONS)
    moment = moment_text(last.last_timestamp_ms)
    return (
        f"Producer id {producer_id} has no transactional id that a coordinator knows, and no transaction open: no "
        f"consumer waits for it. It wrote to {places}; last to {last.topic_partition} at {moment}, epoch "
        f"{last.producer_epoch}, up to sequence {last.last_sequence}."
    )


def _explain_held(
    cluster: Cluster, subject: str, facts: Mapping[TopicPartition, PartitionFacts], options: str
) -> Program[Explanation]:
    bounds = {partition: fact.bounds for partition, fact in facts.items() if fact.bounds is not None}
    held = [partition for partition, limits in bounds.items() if limits.held]
    return (yield from explain_held(cluster, subject, held, bounds, [], [], options))


def _held(
    partitions: Mapping[TopicPartition, PartitionFacts], committed: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    """Partitions where a transaction blocks the group, now or later."""
    return [
        tp
        for tp, partition in partitions.items()
        if partition.bounds is not None and partition.bounds.held
        if committed.get(tp, 0) <= partition.bounds.last_stable_offset
    ]


def _pending(group: str, waits: list[str], holding: list[HangingRow], now_ms: int, options: str) -> Finding:
    """The finding on offsets in an open transaction. Its start is known only if it is the only open one in the offsets
    partition.
    """
    age_ms = holding[0].age_ms if len(holding) == 1 else None
    return Finding(
        Cause.PENDING_OFFSETS,
        Severity.STUCK,
        f"group {group}",
        waits,
        since_ms=None if age_ms is None else now_ms - age_ms,
        no_since="no request tells which of the open transactions has these offsets",
        affected=["every member of the group that starts, or is given these partitions"],
        clears="It clears when that transaction ends: its coordinator aborts it at its time-out, unless it hangs.",
        advice="To see the transactions that are under way:",
        commands=[f"oncelog txn list{options}"],
    )


def _reads_before(facts: GroupFacts, name: str) -> bool:
    """True if the group has something to read before the transaction that holds a partition."""
    partition = next((partition for partition in facts.partitions if str(partition) == name), None)
    return partition is not None and facts.to_read(partition) > 0


def _of_transactions(explanation: Explanation) -> Report:
    first, *others = explanation.chains
    return Report(
        explanation.subject,
        " ".join(first.sentences) if first.about == explanation.subject else "",
        worst_first(
            [held_finding(chain) for chain in (others if first.about == explanation.subject else explanation.chains)]
        ),
        [],
        explanation.transactions,
        explanation.unanswered,
    )


def _group_summary(facts: GroupFacts, findings: list[Finding]) -> str:
    described = facts.description
    behind = sum(facts.to_read(partition) for partition in facts.partitions)
    if not described.has_members_shown and not facts.committed:
        return f"Group {described.group!r} is a {described.group_type} group in state {described.state}."
    members = f" with {counted(len(described.members), 'member')}" if described.has_members_shown else ""
    unread = counted(behind, "offset")
    if facts.uncommitted:
        places = counted(len(facts.uncommitted), "more partition")
        unread = f"{'an unknown number of offsets' if not facts.committed else f'at least {unread}'}"
        unread += f" that it can read: in {places} it has committed nothing"
    else:
        unread += " that it can read"
    text = (
        f"Group {described.group!r} is {described.state}{members}, has offsets "
        f"in {counted(len(facts.committed), 'partition')}, and {unread}."
    )
    if stuck := [
        f"{finding.about} ({finding.cause.value})" for finding in findings if finding.severity is Severity.STUCK
    ]:
        return f"{text} It is stuck: {shortened(stuck, 3)}."
    if risks := [
        f"{finding.about} ({finding.cause.value})" for finding in findings if finding.severity is Severity.RISK
    ]:
        return f"{text} It is not stuck, but may become so: {shortened(risks, 3)}."
    if behind or facts.uncommitted:
        return f"{text} Nothing holds it up that can be seen from here."
    return f"{text} It is not stuck: there is nothing for it to read."


def _unknown_of_group(facts: GroupFacts, principal: str | None) -> list[str]:
    """Questions that the report leaves open, each with the means to answer it."""
    unknown = []
    if facts.history is None:
        unknown.append(
            f"When it last committed, and how often it rebalances: {facts.no_history}. Reading {CONSUMER_OFFSETS} "
            "would tell."
        )
    elif facts.history.since_ms > facts.now_ms - WINDOW_MS:
        looked = duration_text(facts.now_ms - facts.history.since_ms)
        unknown.append(f"What it did before the last {looked}: {CONSUMER_OFFSETS} has too much to read more of it.")
    unknown += open_questions(facts)
    if principal is None and facts.description.members:
        unknown.append("Whether its members may read their topics: give --principal, as whom they log in.")
    elif facts.no_permissions:
        unknown.append(f"Whether {principal} may read: {facts.no_permissions}.")
    return unknown


def without_coordinator(cluster: Cluster, group: str, error: BrokerRefused, options: str) -> Program[Report]:
    """A report on a group whose coordinator does not answer, from the state of its offsets partition."""
    findings = []
    is_loading = error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    text = f"The coordinator of group {group!r} does not answer: {error}."
    if is_loading:
        text = (
            f"The coordinator of group {group!r} is loading: it reads what it has to know of its groups from its log."
        )
    sentences = [text, "Until it does, no member can join or commit, and nothing else is known of the group."]
    if is_loading:
        sentences[1] = "Until it is done, no member can join or commit, and nothing else is known of the group."
    unanswered: list[Unanswered] = []
    partition: TopicPartition | None = None
    # The partition may not be described: the report does without it.
    with contextlib.suppress(ClientError):
        partition = yield from offsets_partition(cluster, group)
    if partition is not None:
        facts, unanswered = yield from partition_facts(cluster, [partition])
        sentences.append(f"Its offsets are kept in {partition}: who leads that partition coordinates the group.")
        findings = partition_findings(facts[partition], options) if partition in facts else []
        if is_loading and partition in facts:
            return _loading(group, partition, facts[partition], sentences, findings, unanswered, options)
    finding = Finding(
        Cause.COORDINATOR_UNAVAILABLE,
        Severity.STUCK,
        f"group {group}",
        sentences,
        evidence={"error": str(error), "offsets_partition": None if partition is None else str(partition)},
        no_since=_NO_TIME,
        affected=["every group whose offsets are in the same partition"],
        clears="It clears when that partition has a leader that has loaded it.",
        advice="To see which brokers are down:",
        commands=[f"oncelog cluster status{options}"],
    )
    return Report(f"group {group}", text, worst_first([finding, *findings]), [], [], unanswered)


def _loading(
    group: str,
    partition: TopicPartition,
    facts: PartitionFacts,
    sentences: list[str],
    findings: list[Finding],
    unanswered: list[Unanswered],
    options: str,
) -> Report:
    """A report on a group whose coordinator is loading: which broker, and how much it has to read."""
    start, end = facts.log_start, None if facts.bounds is None else facts.bounds.end_offset
    offsets = None if start is None or end is None else end - start
    much = "" if offsets is None else f", which has {counted(offsets, 'offset')}"
    sentences.append(
        f"Broker {facts.leader} leads {partition}{much}, and reads all of it; how far it is, it does not tell."
    )
    finding = Finding(
        Cause.COORDINATOR_LOADING,
        Severity.STUCK,
        f"group {group}",
        sentences,
        evidence={"broker": facts.leader, "offsets_partition": str(partition), "offsets": offsets},
        no_since="it began when this broker became the leader of that partition, and no request tells when that was",
        affected=["every group whose offsets are in the same partition"],
        clears="It clears by itself when the broker has read it: a second or a few for each million records.",
        advice="If it takes longer, compaction of that partition may have stopped. To see how large it is:",
        commands=[f"oncelog topic describe {CONSUMER_OFFSETS} --sizes{options}"],
    )
    return Report(f"group {group}", sentences[0], worst_first([finding, *findings]), [], [], unanswered)
