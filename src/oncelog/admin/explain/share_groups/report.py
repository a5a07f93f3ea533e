"""Explains a share group (KIP-932): its causes, its partitions, and transactions that hold what it may read."""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.admin.explain.findings import Finding, Report, Severity, shortened, worst_first
from oncelog.admin.explain.held_partitions import held_finding
from oncelog.admin.explain.partition_causes import partition_findings
from oncelog.admin.explain.share_groups.causes import share_group_findings
from oncelog.admin.explain.share_groups.facts import ISOLATION, ShareGroupFacts, share_group_facts
from oncelog.admin.group_descriptions import GroupDescription
from oncelog.admin.transactions.explanations import explain_held
from oncelog.base.ids import SHARE_GROUP_STATE
from oncelog.base.text import counted
from oncelog.client.programs import Cluster, Program


def explain_share_group(
    cluster: Cluster, described: GroupDescription, *, window_ms: int, principal: str | None, options: str
) -> Program[Report]:
    """Raises BrokerRefused."""
    subject = f"group {described.group}"
    if not described.has_members_shown:
        facts = ShareGroupFacts(described, cluster.environment.wall_ms())
        return Report(subject, _summary(facts, []), share_group_findings(facts, options))
    facts, unanswered = yield from share_group_facts(cluster, described, window_ms=window_ms, principal=principal)
    findings = share_group_findings(facts, options)
    for partition in facts.partitions.values():
        findings += partition_findings(partition, options)
    bounds = {place: partition.bounds for place, partition in facts.partitions.items() if partition.bounds is not None}
    held = [place for place, limits in bounds.items() if limits.held] if facts.reads_committed else []
    explained = yield from explain_held(cluster, subject, held, bounds, [], [], options)
    findings += [held_finding(chain, bool(_reads_before(facts, chain.about))) for chain in explained.chains]
    return Report(
        subject,
        _summary(facts, findings),
        worst_first(findings),
        _unknown(facts, principal),
        explained.transactions,
        list(dict.fromkeys([*unanswered, *explained.unanswered])),
    )


def _reads_before(facts: ShareGroupFacts, name: str) -> int:
    """The offsets that the group still has to deliver before the transaction that holds a partition."""
    return next((facts.to_deliver(place) or 0 for place in facts.partitions if str(place) == name), 0)


def _summary(facts: ShareGroupFacts, findings: Sequence[Finding]) -> str:
    described = facts.description
    if not described.has_members_shown:
        return f"Share group {described.group!r} is {described.state}, and share groups are off in this cluster."
    lags = [facts.to_deliver(place) for place in facts.offsets]
    unread = counted(sum(lag or 0 for lag in lags), "offset")
    if unclear := lags.count(None):
        unread = f"at least {unread} (unknown in {counted(unclear, 'partition')})"
    text = (
        f"Share group {described.group!r} is {described.state} with {counted(len(described.members), 'member')}, has a "
        f"state in {counted(len(facts.offsets), 'partition')}, and {unread} to deliver."
    )
    for severity, words in ((Severity.STUCK, "It is stuck"), (Severity.RISK, "It is not stuck, but has risks")):
        if named := [
            f"{finding.about} ({finding.cause.value})" for finding in findings if finding.severity is severity
        ]:
            return f"{text} {words}: {shortened(named, 3)}."
    if any(lags):
        return f"{text} Nothing holds it up that can be seen from here."
    return f"{text} It is not stuck: there is nothing for it to deliver."


def _unknown(facts: ShareGroupFacts, principal: str | None) -> list[str]:
    """Questions that the report leaves open, each with the means to answer it."""
    unknown = []
    if facts.recorded is None:
        unknown.append(
            f"Which records came back or were archived, and when: {facts.no_record}. Reading {SHARE_GROUP_STATE} would "
            "tell."
        )
    if facts.offsets and len(facts.told) < len(facts.offsets):
        unknown.append(
            "Which member holds which records, and until when: a leader does not tell. Those of Apache Kafka never do "
            "(their metric InFlightMessageCount has how many are in flight), oncelog's once a member has fetched."
        )
    if not facts.settings:
        unknown.append(
            "Its settings, such as the limit of deliveries: they may not be described; defaults are assumed."
        )
    elif ISOLATION not in facts.settings:
        unknown.append(f"Whether it reads committed records only ({ISOLATION}): its coordinator does not say.")
    if principal is None and facts.description.members:
        unknown.append("Whether its members may read their topics: give --principal, as whom they log in.")
    elif facts.no_permissions:
        unknown.append(f"Whether {principal} may read: {facts.no_permissions}.")
    return unknown
