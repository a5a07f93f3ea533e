"""Finds why a partition cannot be written, or read to its end, in the state of its replicas. Pure: facts in, findings
out.

Transactions are covered by ``admin.transactions.explanations``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from oncelog.admin.explain.findings import Cause, Evidence, Finding, Severity, joined
from oncelog.admin.explain.partition_facts import PartitionFacts
from oncelog.base.ids import TopicPartition
from oncelog.base.notation.shell_words import argument
from oncelog.base.text import counted

_MOVES_ON_MS = 30_000
"""The default of replica.lag.time.max.ms: a follower that lags this long leaves the in-sync set."""

_NO_TIME = "brokers keep no time of it that can be asked for; the log of the partition's leader has one"


def partition_findings(facts: PartitionFacts, options: str = "") -> list[Finding]:
    findings = _replication(facts, options) if facts.exists else [_gone(facts.partition, options)]
    return [replace(finding, partitions=(facts.partition,)) for finding in findings if finding is not None]


def _replication(facts: PartitionFacts, options: str) -> Iterator[Finding | None]:
    if facts.leader is None:
        yield _no_leader(facts, options)
        return
    needed = facts.needed_in_sync
    if needed is not None and len(facts.isr) < needed:
        yield _under_min_isr(facts, needed, options)
    # Being under min ISR implies a lost replica: one finding is enough.
    elif facts.lost_replicas:
        yield _under_replicated(facts, options)
    yield _slow_follower(facts, options)


def _gone(partition: TopicPartition, options: str) -> Finding:
    return Finding(
        Cause.TOPIC_GONE,
        Severity.STUCK,
        str(partition),
        [f"{partition} does not exist: its topic was deleted, or has fewer partitions now."],
        clears="It clears when it is created again; offsets committed for the old one then mean nothing.",
        advice="To see the topics there are:",
        commands=[f"oncelog topic list{options}"],
    )


def _no_leader(facts: PartitionFacts, options: str) -> Finding:
    partition = facts.partition
    evidence: Evidence = {"replicas": _listed(facts.replicas), "isr": _listed(facts.isr)}
    sentences = [f"{partition} has no leader: it can neither be written nor read."]
    eligible, last_known = facts.eligible.replicas, facts.eligible.last_known
    complete = (*facts.isr, *(replica for replica in eligible if replica not in facts.isr))
    if eligible:
        evidence["eligible"] = _listed(eligible)
    if complete:
        reason = "in sync" if facts.isr else "an eligible leader, KIP-966: it had all records"
        sentences.append(
            f"Only {_brokers(complete)} may lead it without loss ({reason} when the last leader went); "
            f"{'it is' if len(complete) == 1 else 'they are'} not there."
        )
    elif last_known:
        sentences.append(
            f"{_brokers(last_known)} had all records, and restarted without a clean shutdown: the last of them may be "
            "missing."
        )
    others = [replica for replica in facts.replicas if replica not in (complete or last_known)]
    if others:
        sentences.append(
            f"{_brokers(others)} {_has(others)} a copy that was not in sync: records may be missing in it."
        )
    needs_unclean = bool(others) or (not complete and bool(last_known))
    return Finding(
        Cause.NO_LEADER,
        Severity.STUCK,
        str(partition),
        sentences,
        evidence=evidence | {"offline": _listed(facts.offline)},
        no_since=_NO_TIME,
        affected=["every producer and consumer of this partition"],
        clears=f"It clears by itself when {_any_of(complete or last_known or facts.replicas)} is back.",
        advice="Start that broker"
        + (
            ". Only if it is gone for good, and what it alone has may be lost:"
            if needs_unclean
            else "; to see which are down:"
        ),
        commands=[
            f"oncelog topic elect --unclean{options} {argument(f'{partition.topic}:{partition.partition}')}"
            if needs_unclean
            else f"oncelog cluster status{options}"
        ],
    )


def _under_min_isr(facts: PartitionFacts, needed: int, options: str) -> Finding:
    lost = facts.lost_replicas
    return Finding(
        Cause.UNDER_MIN_ISR,
        Severity.STUCK,
        str(facts.partition),
        [
            f"{facts.partition} has {len(facts.isr)} of {len(facts.replicas)} replicas in sync, and "
            f"min.insync.replicas is {facts.min_isr}: acks=all is refused with "
            "NOT_ENOUGH_REPLICAS, transactions included.",
            f"Not in sync: {_brokers(lost)}{_lag_text(facts)}.",
            "What was written with acks=1 is not shown to consumers before enough replicas have it.",
        ],
        evidence=_evidence(facts) | {"needed": needed},
        since_ms=facts.lacks_since_ms,
        no_since=_NO_TIME,
        affected=["producers with acks=all, and transactions that write here"],
        clears=f"It clears by itself when {_any_of(lost)} has caught up.",
        advice="To see which brokers are down, and what else they hold up:",
        commands=[f"oncelog cluster status{options}"],
    )


def _under_replicated(facts: PartitionFacts, options: str) -> Finding:
    lost = facts.lost_replicas
    return Finding(
        Cause.UNDER_REPLICATED,
        Severity.RISK,
        str(facts.partition),
        [
            f"{facts.partition} is written and read, but {_brokers(lost)} {_is(lost)} not in sync{_lag_text(facts)}: "
            "if its other replicas are lost, so are its records."
        ],
        evidence=_evidence(facts),
        since_ms=facts.lacks_since_ms,
        no_since=_NO_TIME,
        clears=f"It clears by itself when {_any_of(lost)} has caught up.",
        advice="To see which brokers are down:",
        commands=[f"oncelog cluster status{options}"],
    )


def _slow_follower(facts: PartitionFacts, options: str) -> Finding | None:
    """Records that the leader has but consumers may not see yet, because an in-sync replica has not copied them."""
    waiting, bounds = facts.uncommitted, facts.bounds
    if not waiting or bounds is None or facts.leader is None:
        return None
    end = facts.ends[facts.leader]
    # The high watermark waits for the slowest in-sync replica.
    slow = [
        replica for replica in facts.isr if replica != facts.leader and facts.ends.get(replica, -1) <= bounds.end_offset
    ]
    if not slow:
        return None
    return Finding(
        Cause.SLOW_FOLLOWER,
        Severity.RISK,
        str(facts.partition),
        [
            f"The leader of {facts.partition}, broker {facts.leader}, has {counted(waiting, 'record')} that no "
            f"consumer may read yet: consumers see all before offset {bounds.end_offset:,}, the log ends at {end:,}.",
            f"They wait for {_brokers(slow)}, which {_is(slow)} in sync by the books{_lag_text(facts, slow)}.",
        ],
        evidence=_evidence(facts) | {"high_watermark": bounds.end_offset, "waiting": waiting},
        since_ms=facts.lacks_since_ms,
        no_since=_NO_TIME,
        affected=["consumers of this partition, and producers with acks=all"],
        clears=f"It clears by itself when it has copied them, or is taken out of the in-sync set "
        f"(replica.lag.time.max.ms, by default {_MOVES_ON_MS // 1000} s).",
        advice="If it stays so, look at the log and the disk of that broker:",
        commands=[f"oncelog cluster status{options}"],
    )


def _lag_text(facts: PartitionFacts, which: tuple[int, ...] | list[int] | None = None) -> str:
    end = None if facts.leader is None else facts.ends.get(facts.leader)
    sentences = []
    for broker in facts.lost_replicas if which is None else which:
        own = facts.ends.get(broker)
        if own is None:
            sentences.append(f"{broker} does not answer")
        elif end is not None:
            sentences.append(f"{broker} is {counted(max(0, end - own), 'record')} behind")
    return f" ({'; '.join(sentences)})" if sentences else ""


def _evidence(facts: PartitionFacts) -> dict[str, str | int | float | bool | None]:
    return {
        "leader": facts.leader,
        "replicas": _listed(facts.replicas),
        "isr": _listed(facts.isr),
        "min_isr": facts.min_isr,
        "log_ends": ", ".join(f"{broker}: {end}" for broker, end in sorted(facts.ends.items())),
    }


def _listed(brokers: tuple[int, ...]) -> str:
    return ", ".join(map(str, brokers))


def _brokers(ids: tuple[int, ...] | list[int]) -> str:
    return ("broker " if len(ids) == 1 else "brokers ") + joined([str(id_) for id_ in ids])


def _any_of(ids: tuple[int, ...]) -> str:
    return f"broker {ids[0]}" if len(ids) == 1 else f"one of brokers {joined([str(id_) for id_ in ids])}"


def _is(ids: tuple[int, ...] | list[int]) -> str:
    return "is" if len(ids) == 1 else "are"


def _has(ids: tuple[int, ...] | list[int]) -> str:
    return "has" if len(ids) == 1 else "have"
