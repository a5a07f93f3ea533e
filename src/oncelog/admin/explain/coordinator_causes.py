"""The coordinator of a group that does not answer: why, as far as its partition of offsets tells."""

from __future__ import annotations

from typing import Final

from oncelog.admin.explain.findings import Cause, Finding, Report, Severity, worst_first
from oncelog.admin.explain.partition_causes import partition_findings
from oncelog.admin.explain.partition_facts import PartitionFacts, partition_facts
from oncelog.admin.explain.words import counted
from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import CONSUMER_OFFSETS, TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.errors import BrokerRefused, ClientError

NO_COORDINATOR: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
"""Errors with which no coordinator answers for a group."""
_NO_TIME: Final = "no request tells it; the logs of the brokers do"


def without_coordinator(client: Client, group: str, error: BrokerRefused, options: str) -> Report:
    """A report on a group whose coordinator does not answer: why, as far as its partition of offsets tells."""
    findings = []
    is_loading = error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    text = f"The coordinator of group {group!r} does not answer: {error}."
    if is_loading:
        text = (
            f"The coordinator of group {group!r} is loading: it reads what it has to know of its groups from its log."
        )
    said = [text, "Until it does, no member can join or commit, and nothing else is known of the group."]
    if is_loading:
        said[1] = "Until it is done, no member can join or commit, and nothing else is known of the group."
    unanswered: list[Unanswered] = []
    where = _offsets_partition(client, group)
    if where is not None:
        facts, unanswered = partition_facts(client, [where])
        said.append(f"Its offsets are kept in {where}: who leads that partition coordinates the group.")
        findings = partition_findings(facts[where], options) if where in facts else []
        if is_loading and where in facts:
            return _loading(group, where, facts[where], said, findings, unanswered, options)
    finding = Finding(
        Cause.COORDINATOR_UNAVAILABLE,
        Severity.STUCK,
        f"group {group}",
        said,
        evidence={"error": str(error), "offsets_partition": None if where is None else str(where)},
        no_since=_NO_TIME,
        affected=["every group whose offsets are in the same partition"],
        clears="It clears when that partition has a leader that has loaded it.",
        advice="To see which brokers are down:",
        commands=[f"oncelog cluster status{options}"],
    )
    return Report(f"group {group}", text, worst_first([finding, *findings]), [], [], unanswered)


def _loading(
    group: str,
    where: TopicPartition,
    facts: PartitionFacts,
    said: list[str],
    findings: list[Finding],
    unanswered: list[Unanswered],
    options: str,
) -> Report:
    """A report on a group whose coordinator is loading: which broker, and how much it has to read."""
    start, end = facts.log_start, None if facts.bounds is None else facts.bounds.end_offset
    offsets = None if start is None or end is None else end - start
    much = "" if offsets is None else f", which has {counted(offsets, 'offset')}"
    said.append(f"Broker {facts.leader} leads {where}{much}, and reads all of it; how far it is, it does not tell.")
    finding = Finding(
        Cause.COORDINATOR_LOADING,
        Severity.STUCK,
        f"group {group}",
        said,
        evidence={"broker": facts.leader, "offsets_partition": str(where), "offsets": offsets},
        no_since="it began when this broker became the leader of that partition, and no request tells when that was",
        affected=["every group whose offsets are in the same partition"],
        clears="It clears by itself when the broker has read it: a second or a few for each million records.",
        advice="If it takes longer, compaction of that partition may have stopped. To see how large it is:",
        commands=[f"oncelog topic describe {CONSUMER_OFFSETS} --sizes{options}"],
    )
    return Report(f"group {group}", said[0], worst_first([finding, *findings]), [], [], unanswered)


def _offsets_partition(client: Client, group: str) -> TopicPartition | None:
    try:
        count = len(client.metadata({CONSUMER_OFFSETS})[CONSUMER_OFFSETS].partitions)
    except (ClientError, KeyError):
        return None
    return TopicPartition(CONSUMER_OFFSETS, coordinator_partition(group, count)) if count else None
