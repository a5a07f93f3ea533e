"""Finds the causes of a stuck group in its coordinator's state and its offsets. Pure.

The group is judged as a whole first (no members, rebalancing, permissions), then each partition, and last the
partitions with unread records that stand still, together with their member: all partitions of a member say more than
one. Causes of the consumer protocol alone are in ``consumer_group_causes`` and ``subscription_causes``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from oncelog.admin.explain.consumer_group_causes import consumer_group_findings, describe_command
from oncelog.admin.explain.consumer_group_history import ClientHost
from oncelog.admin.explain.findings import Cause, Finding, Severity, with_partitions
from oncelog.admin.explain.group_facts import Denied, GroupFacts
from oncelog.admin.explain.group_history import Generation
from oncelog.admin.explain.pending_members import SESSION_MS, pending_member
from oncelog.admin.explain.stalled_partitions import stalled_partition_findings
from oncelog.admin.explain.subscription_causes import subscription_findings
from oncelog.admin.explain.uncommitted_partitions import uncommitted_findings
from oncelog.admin.group_descriptions import CLASSIC, CONSUMER
from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.base.ids import TopicPartition
from oncelog.base.notation.shell_words import argument, option
from oncelog.base.text import counted
from oncelog.records.internal.group_records import MemberMetadata

_REBALANCING: Final = frozenset({"PreparingRebalance", "CompletingRebalance"})
MANY_REBALANCES: Final = 4
"""Rebalances within the window that count as many; deploying one member makes two."""
CONSTANT_REBALANCES: Final = 8
"""Rebalances within the window that keep a group from working."""


def group_findings(facts: GroupFacts, options: str = "") -> list[Finding]:
    """Everything that blocks the group, or seems to. ``options`` name the cluster in the commands."""
    whole = [
        not_permitted(facts.denied, options),
        _no_members(facts, options),
        _rebalancing(facts, options),
        _rebalances_repeatedly(facts, options),
    ]
    positions = [finding for partition in facts.partitions for finding in _position(facts, partition, options)]
    findings = [
        *(finding for finding in whole if finding is not None),
        *consumer_group_findings(facts, options),
        *subscription_findings(facts, options),
        *positions,
        *uncommitted_findings(facts, options),
        *stalled_partition_findings(facts, options),
    ]
    return with_partitions(findings, facts.partitions)


def not_permitted(denied: Sequence[Denied], options: str) -> Finding | None:
    if not denied:
        return None
    first = denied[0]
    sentences = [
        f"{denial.principal} may not {denial.operation} {denial.kind} {denial.name!r} ({denial.reason})."
        for denial in denied
    ]
    user, operation = first.principal.partition(":")[2], first.operation.lower()
    resource = option(f"--{first.kind}", first.name)
    return Finding(
        Cause.NOT_PERMITTED,
        Severity.STUCK,
        first.principal,
        sentences,
        evidence={"denied": len(denied), "principal": first.principal, "reason": first.reason},
        affected=[f"everything that logs in as {first.principal}"],
        clears="It clears when an administrator allows it.",
        advice="To see the entries that decide, and to add one:",
        commands=[
            f"oncelog acl explain {resource} --operation {operation}{options} {option('--principal', user)}",
            f"oncelog acl allow {resource}{options} {argument(user)} {operation}",
        ],
    )


def _no_members(facts: GroupFacts, options: str) -> Finding | None:
    if facts.description.members or not facts.description.has_members_shown:
        return None
    behind = sum(facts.to_read(partition) > 0 for partition in facts.partitions)
    last = facts.history.generations[-1] if facts.history is not None and facts.history.generations else None
    sentences = ["It has no members: no consumer runs, or its consumers assign their partitions themselves."]
    since_ms = None
    # A classic group writes an empty generation when its last member leaves; a consumer group removes the member.
    if facts.description.group_type == CONSUMER:
        since_ms = facts.epochs.left[-1].at_ms if facts.epochs.left else None
    elif last is not None and not last.members:
        since_ms = last.at_ms
    if since_ms is not None:
        sentences.append(
            f"Its last member left at {moment_text(since_ms)}, {duration_text(facts.now_ms - since_ms)} ago."
        )
    if behind:
        sentences.append(f"It has records to read in {counted(behind, 'partition')}.")
    return Finding(
        Cause.NO_MEMBERS,
        Severity.STUCK if behind else Severity.NOTE,
        facts.description.group,
        sentences,
        evidence={"partitions_behind": behind},
        since_ms=since_ms,
        affected=["everything that waits for what this group does"] if behind else [],
        clears="It clears when a consumer of the group is started.",
        advice="To see where it is, and who has been its members:" if behind else "",
        commands=[describe_command(facts, options)] if behind else [],
    )


def _rebalancing(facts: GroupFacts, options: str) -> Finding | None:
    described = facts.description
    if described.state not in _REBALANCING:
        return None
    if (pending := pending_member(facts, options)) is not None:
        return pending
    sentences = [f"It is rebalancing ({described.state}): until all members have joined, no member may commit."]
    if described.group_type == CLASSIC and described.state == "PreparingRebalance":
        sentences.append(
            "It may also wait for a member id that a client was given and never used (KIP-394): for that client's "
            f"session time-out, by default {duration_text(SESSION_MS)}. The log of its coordinator tells."
        )
    timeout_ms = max((known_member.rebalance_timeout_ms for known_member in _known_members(facts)), default=0)
    clears = "It clears by itself when every member has joined again"
    if timeout_ms > 0:
        clears += f", at the latest after {duration_text(timeout_ms)} (max.poll.interval.ms of its members), without "
        clears += "those that have not"
    return Finding(
        Cause.REBALANCING,
        Severity.STUCK,
        described.group,
        sentences,
        evidence={"state": described.state, "members": len(described.members)},
        affected=[member.client_id for member in described.members],
        clears=f"{clears}.",
        advice="To see who has joined; a member that is missing works on what it has been given, or is dead:",
        commands=[describe_command(facts, options)],
    )


def _known_members(facts: GroupFacts) -> tuple[MemberMetadata, ...]:
    generations = facts.history.generations if facts.history is not None else []
    return generations[-1].members if generations else ()


def _rebalances_repeatedly(facts: GroupFacts, options: str) -> Finding | None:
    is_classic = facts.description.group_type == CLASSIC
    generations = facts.history.generations if facts.history is not None and is_classic else []
    # Generations without members are not rebalances.
    times = sum(bool(generation.members) for generation in generations)
    if times < MANY_REBALANCES:
        return None
    since = duration_text(facts.now_ms - generations[0].at_ms)
    first, last = generations[0].number, generations[-1].number
    sentences = [f"It has rebalanced {counted(times, 'time')} within {since}: generations {first:,} to {last:,}."]
    joined, left = changes(generations)
    if not joined and not left:
        sentences.append(
            "The members stayed the same: they join again because what they subscribe to changes (topics or partitions "
            "are added, a pattern matches more), or because each commit comes too late."
        )
    # A client that keeps joining explains more than one that left.
    culprit = joined.most_common(1) or left.most_common(1)
    evidence: dict[str, str | int | float | bool | None] = {"rebalances": times}
    if culprit:
        (client_id, host), count = culprit[0]
        evidence |= {"client_id": client_id, "host": host, "joined_anew": count}
        sentences.append(
            f"Client {client_id!r} on {host.lstrip('/')} came as a new member {counted(count, 'time')}: it starts "
            "again and again, loses its connection, or takes longer between two polls than max.poll.interval.ms."
        )
        sentences.append("Its log says which; with group.instance.id a restart of it would not rebalance the others.")
    return Finding(
        Cause.REBALANCES_REPEATEDLY,
        Severity.STUCK if times >= CONSTANT_REBALANCES else Severity.RISK,
        facts.description.group,
        sentences,
        evidence=evidence,
        since_ms=generations[0].at_ms,
        affected=sorted({member.client_id for member in facts.description.members}),
        clears="It clears when no member comes or goes.",
        advice="To see who they are now:",
        commands=[describe_command(facts, options)],
    )


def changes(generations: list[Generation]) -> tuple[Counter[ClientHost], Counter[ClientHost]]:
    """How often clients joined as new members, and left, from one generation to the next."""
    joined: Counter[ClientHost] = Counter()
    left: Counter[ClientHost] = Counter()
    for before, after in pairwise(generations):
        # A restarted client gets a new member id, so it counts as joined and left.
        before_ids, after_ids = (
            {member.member_id for member in before.members},
            {member.member_id for member in after.members},
        )
        joined.update(
            (member.client_id, member.client_host) for member in after.members if member.member_id not in before_ids
        )
        left.update(
            (member.client_id, member.client_host) for member in before.members if member.member_id not in after_ids
        )
    return joined, left


def _position(facts: GroupFacts, tp: TopicPartition, options: str) -> Iterator[Finding]:
    """Findings about the group's offset in a partition that has a leader."""
    partition, position = facts.partitions[tp], facts.committed.get(tp)
    bounds = partition.bounds
    if bounds is None or position is None:
        return
    if partition.log_start is not None and position < partition.log_start:
        yield _behind_retention(facts, tp, position, partition.log_start, options)
    elif position > bounds.end_offset:
        yield _beyond_end(facts, tp, position, bounds.end_offset, options)
    # Readers of committed records never get beyond the last stable offset.
    elif position > bounds.last_stable_offset:
        yield Finding(
            Cause.READS_UNCOMMITTED,
            Severity.NOTE,
            str(tp),
            [
                f"In {tp} it is at offset {position:,}, beyond the last stable offset "
                f"{bounds.last_stable_offset:,}: it reads uncommitted records, and no transaction holds it."
            ],
        )
    elif tp in facts.only_markers:
        yield Finding(
            Cause.ONLY_MARKERS_LEFT,
            Severity.NOTE,
            str(tp),
            [
                f"In {tp} it is at offset {position:,} of {bounds.last_stable_offset:,}, and there is nothing left for "
                "consumers of committed records: what lies between are the ends of transactions, and aborted records. "
                "Its lag is not 0, and nothing is missing."
            ],
            evidence={"position": position, "last_stable_offset": bounds.last_stable_offset},
        )
    batch = facts.next_batches.get(tp)
    # Compaction and aborted transactions leave such holes; lag counts them.
    if batch is not None and batch.first_offset > position:
        yield Finding(
            Cause.COMPACTED_HOLE,
            Severity.NOTE,
            str(tp),
            [
                f"In {tp} the next record after offset {position:,} is {batch.first_offset:,}: what lies between "
                "has been compacted away, or belongs to transactions. No record is lost to the group; its lag counts "
                "offsets, not records."
            ],
            evidence={"position": position, "next_record": batch.first_offset},
        )


def _behind_retention(facts: GroupFacts, partition: TopicPartition, position: int, start: int, options: str) -> Finding:
    return Finding(
        Cause.BEHIND_RETENTION,
        Severity.STUCK,
        str(partition),
        [
            f"In {partition} it is at offset {position:,}, and the log begins at {start:,} now: retention, or a client "
            f"with DeleteRecords, has removed {counted(start - position, 'offset')} that it has not read.",
            "A consumer that reads on from there is told OFFSET_OUT_OF_RANGE: it goes where auto.offset.reset says "
            "(earliest, or latest, which skips everything there is), or it stops where that is none.",
        ],
        evidence={"position": position, "log_start": start, "removed": start - position},
        since_ms=facts.last_move_ms(partition),
        clears="It clears when the group goes on from an offset that is there. What was removed cannot be read again.",
        advice="To go on with the first record there is (stop the members first):",
        commands=[_reset(facts, partition, "--to-earliest", options)],
    )


def _beyond_end(facts: GroupFacts, partition: TopicPartition, position: int, end: int, options: str) -> Finding:
    return Finding(
        Cause.BEYOND_END,
        Severity.STUCK,
        str(partition),
        [
            f"In {partition} it is at offset {position:,}, and the log ends at {end:,}: the topic was deleted and made "
            "anew, records were lost in an unclean election, or the offset comes from another cluster.",
            f"It will not see records {end:,} to {position - 1:,}, whatever they are, unless its auto.offset.reset "
            "takes it back.",
        ],
        evidence={"position": position, "end": end},
        since_ms=facts.last_move_ms(partition),
        clears="It seems to clear when the log has grown past that offset, with everything before it unread.",
        advice="To go on with the first record there is, or with the next to come (stop the members first):",
        commands=[_reset(facts, partition, "--to-earliest", options), _reset(facts, partition, "--to-latest", options)],
    )


def _reset(facts: GroupFacts, partition: TopicPartition, to: str, options: str) -> str:
    place, group = option("--topic", f"{partition.topic}:{partition.partition}"), argument(facts.description.group)
    return f"oncelog group reset-offsets {place} {to} --execute{options} {group}"
