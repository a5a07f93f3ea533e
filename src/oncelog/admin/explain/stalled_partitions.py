"""Explains partitions of a group with unread records that do not advance, by what their member does elsewhere. Pure.

Heartbeats come from a thread of their own, so they do not show that a member polls. But a Java or librdkafka consumer
that does not poll for max.poll.interval.ms leaves the group: a member that has stood still for longer does poll. If its
other partitions advance, the next record is the reason, and the finding says how to look at it and how to skip it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from oncelog.admin.explain.findings import Cause, Evidence, Finding, Severity, kafka_options, shortened
from oncelog.admin.explain.group_facts import GroupFacts
from oncelog.admin.explain.group_history import GroupHistory
from oncelog.admin.group_descriptions import MemberRow
from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.base.ids import TopicPartition
from oncelog.base.notation.shell_words import argument, option
from oncelog.base.text import counted
from oncelog.base.units import MIB

_NEAR_QUOTA: Final = 0.8
_WORKING: Final = frozenset({"Stable", "Assigning", "Reconciling"})
"""States in which members read: in the consumer protocol (KIP-848) also while partitions move."""
DEFAULT_PARTITION_BYTES: Final = MIB
"""max.partition.fetch.bytes of Java's consumers and most others. Whether a consumer reads a larger batch depends on its
other limits, which only the consumer knows."""


def stalled_partition_findings(facts: GroupFacts, options: str = "") -> list[Finding]:
    if not facts.description.members or facts.description.state not in _WORKING:
        return []
    owners = facts.owners
    behind = [partition for partition in facts.partitions if facts.to_read(partition)]
    # While partitions move, one without an owner is on its way to a member.
    is_stable = facts.description.state == "Stable"
    findings = [_not_assigned(facts, tp, options) for tp in behind if is_stable and tp not in owners]
    by_member: dict[str, list[TopicPartition]] = {}
    for tp in behind:
        if tp in owners:
            by_member.setdefault(owners[tp].member_id, []).append(tp)
    for lagging in by_member.values():
        # A static member that is away sends no heartbeats: the group waits for its successor.
        if owners[lagging[0]].is_away:
            continue
        findings += _of_member(facts, owners[lagging[0]], lagging, owners, options)
    return findings


def _not_assigned(facts: GroupFacts, tp: TopicPartition, options: str) -> Finding:
    group = facts.description.group
    return Finding(
        Cause.NOT_ASSIGNED,
        Severity.STUCK,
        str(tp),
        [
            f"In {tp} it has {counted(facts.to_read(tp), 'offset')} to read, and no member is assigned to "
            f"it: its members do not subscribe to {tp.topic!r} any more, or a member was left out of the assignment."
        ],
        evidence={"position": facts.committed[tp], "to_read": facts.to_read(tp)},
        since_ms=facts.last_move_ms(tp),
        affected=["no other consumer: the group's other partitions have members"],
        clears="It clears when a member subscribes to it.",
        advice="To see what its members read; and, if the group has given this topic up, to forget its offsets there:",
        commands=[
            f"oncelog group describe --members{options} {argument(group)}",
            f"oncelog group delete {option('--topic', f'{tp.topic}:{tp.partition}')}{options} {argument(group)}",
        ],
    )


def _of_member(
    facts: GroupFacts,
    member: MemberRow,
    lagging: list[TopicPartition],
    owners: Mapping[TopicPartition, MemberRow],
    options: str,
) -> Iterator[Finding]:
    history = facts.history
    # Without commit times nothing tells a busy member from a stuck one.
    if history is None:
        return
    moving = [partition for partition in lagging if history.advances(partition, facts.now_ms)]
    still = [partition for partition in lagging if partition not in moving]
    for partition in moving:
        yield _busy(facts, history, member, partition, options)
    if not still:
        return
    own = [partition for partition, owner in owners.items() if owner.member_id == member.member_id]
    # Advancing partitions prove that the member polls.
    others_advance = any(history.advances(partition, facts.now_ms) for partition in own)
    for partition in still:
        if is_large(facts, partition):
            yield large_batch(facts, history, member, partition, others_advance, options)
        elif others_advance:
            yield does_not_advance(facts, history, member, partition, options)
    if not others_advance:
        yield _does_not_commit(facts, history, member, still, options)


def _busy(facts: GroupFacts, history: GroupHistory, member: MemberRow, tp: TopicPartition, options: str) -> Finding:
    rate = history.rate_a_second(tp, facts.now_ms) or 0.0
    pace = f", by {rate:,.1f} offsets a second" if rate else ""
    sentences = [
        f"In {tp} member {member.client_id!r} advances{pace}; its last commit was "
        f"{duration_text(facts.now_ms - (facts.last_move_ms(tp) or facts.now_ms))} ago. It has "
        f"{counted(facts.to_read(tp), 'offset')} to read."
    ]
    evidence: Evidence = {"offsets_a_second": round(rate, 3), "to_read": facts.to_read(tp)}
    batch, limit = facts.next_batches.get(tp), facts.quotas.get(member.client_id)
    if batch is not None and limit is not None:
        bytes_a_second = rate * batch.bytes_a_record
        evidence |= {"bytes_a_second": round(bytes_a_second), "consumer_byte_rate": limit}
        # The commits' rate is a little below the fetch rate: 80 % of the quota is close enough.
        if bytes_a_second >= _NEAR_QUOTA * limit:
            sentences.append(
                f"That is about {bytes_a_second:,.0f} bytes a second, and the quota of client id "
                f"{member.client_id!r} is {limit:,.0f} (consumer_byte_rate, at each broker): the quota holds it back."
            )
            return Finding(
                Cause.QUOTA,
                Severity.STUCK,
                str(tp),
                sentences,
                evidence,
                since_ms=history.commits[tp][0].at_ms if history.commits.get(tp) else None,
                no_since="it is counted by the commits of the last minutes",
                affected=[f"everybody with client id {member.client_id!r}"],
                clears="It clears when the quota is raised, or when nothing more is written.",
                advice="To give this client id ten times as much, with Apache Kafka's own tool:",
                commands=[
                    f"kafka-configs{kafka_options(options)} --alter --entity-type clients "
                    f"{option('--entity-name', member.client_id)} --add-config consumer_byte_rate={10 * limit:.0f}"
                ],
            )
    if rate > 0:
        sentences.append(
            f"With nothing new written it would be done in {duration_text(int(facts.to_read(tp) / rate * 1000))}."
        )
    return Finding(Cause.BUSY, Severity.NOTE, str(tp), sentences, evidence)


def _does_not_commit(
    facts: GroupFacts, history: GroupHistory, member: MemberRow, still: list[TopicPartition], options: str
) -> Finding:
    first = still[0]
    timeout_ms = facts.rebalance_timeout_ms(member.member_id)
    idle_ms = facts.now_ms - (facts.last_move_ms(first) or history.since_ms)
    sentences = [
        f"Member {member.client_id!r} on {member.host.lstrip('/')} has {shortened(still)} and sends heartbeats, but "
        f"has committed nothing new{since(facts, history, first)}, with "
        f"{counted(sum(facts.to_read(partition) for partition in still), 'offset')} to read."
    ]
    if timeout_ms is not None and 0 < timeout_ms < idle_ms:
        sentences.append(
            f"That is longer than its max.poll.interval.ms ({duration_text(timeout_ms)}), after which a consumer that "
            "does not poll leaves the group. So it polls: it reads without committing, has paused its partitions, or "
            "tries the same record again and again."
        )
    else:
        limit = "max.poll.interval.ms" if timeout_ms is None else f"{duration_text(timeout_ms)} (max.poll.interval.ms)"
        sentences.append(
            f"Either it works on what it has been given, and does not poll: then it leaves the group {limit} after its "
            "last poll; or it reads without committing."
        )
    if large := [partition for partition in still if is_large(facts, partition)]:
        sentences.append(
            f"In {shortened(large)} the record that comes next may be larger than it takes: see large-batch."
        )
    return Finding(
        Cause.MEMBER_DOES_NOT_COMMIT,
        Severity.STUCK,
        f"member {member.client_id}",
        sentences,
        evidence={
            "member_id": member.member_id,
            "client_id": member.client_id,
            "host": member.host,
            "max_poll_interval_ms": timeout_ms,
            "idle_ms": idle_ms,
        },
        since_ms=facts.last_move_ms(first),
        affected=[f"everything that waits for {shortened(still)}"],
        clears="It clears when the member commits, or leaves and another one takes over.",
        advice="Its own log says what it does; stopped, it leaves its partitions to the others. To see who they are:",
        commands=[f"oncelog group describe --members{options} {argument(facts.description.group)}"],
        partitions=tuple(still),
    )


def does_not_advance(
    facts: GroupFacts, history: GroupHistory, member: MemberRow, partition: TopicPartition, options: str
) -> Finding:
    batch = facts.next_batches.get(partition)
    # A member whose other partitions advance does poll.
    sentences = [
        _stall_text(facts, history, member, partition, others_advance=True),
        "So it polls, and either has paused this partition, or fails at the record that comes next and tries again.",
    ]
    if batch is not None:
        sentences.append(
            f"That is offset {batch.first_offset:,}, in a batch of {batch.size_bytes:,} bytes and "
            f"{counted(batch.record_count, 'record')}."
        )
    return Finding(
        Cause.PARTITION_DOES_NOT_ADVANCE,
        Severity.STUCK,
        str(partition),
        sentences,
        evidence=_evidence_of_next(facts, member, partition),
        since_ms=facts.last_move_ms(partition),
        affected=[f"no other consumer: the other partitions of member {member.client_id!r} advance"],
        clears="It clears when the member resumes the partition, or gets past that record; its log says which it is.",
        advice="To look at the record; and, if it cannot be processed, to go on behind it (stop the members first):",
        commands=_commands_at(facts, partition, options),
    )


def is_large(facts: GroupFacts, partition: TopicPartition) -> bool:
    batch = facts.next_batches.get(partition)
    return batch is not None and batch.size_bytes > DEFAULT_PARTITION_BYTES


def large_batch(
    facts: GroupFacts,
    history: GroupHistory,
    member: MemberRow,
    partition: TopicPartition,
    others_advance: bool,
    options: str,
) -> Finding:
    """The finding on a partition that stands still before a batch that may be too large: without progress elsewhere, no
    proof."""
    batch = facts.next_batches[partition]
    sentences = [
        _stall_text(facts, history, member, partition, others_advance=others_advance),
        f"The record that comes next, offset {batch.first_offset:,}, is in a batch of {batch.size_bytes:,} bytes and "
        f"{counted(batch.record_count, 'record')}; max.partition.fetch.bytes is 1 MiB by default.",
        "Java's consumers since 0.10.1 take the first batch whatever its size. Those before, and those with a limit of "
        "their own (librdkafka: receive.message.max.bytes, others: the size of a response or message), refuse it, say "
        "so in their log, and ask for it again and again.",
    ]
    return Finding(
        Cause.LARGE_BATCH,
        Severity.STUCK if others_advance else Severity.RISK,
        str(partition),
        sentences,
        evidence=_evidence_of_next(facts, member, partition),
        since_ms=facts.last_move_ms(partition),
        affected=["every consumer of this partition with the same limits, and what it reads from the same broker"],
        clears="It clears when the consumer is started with a limit above that size, or when retention removes the "
        "record.",
        advice="To look at the record; and to go on behind it, without it (stop the members first):",
        commands=_commands_at(facts, partition, options),
    )


def _stall_text(
    facts: GroupFacts, history: GroupHistory, member: MemberRow, tp: TopicPartition, *, others_advance: bool
) -> str:
    beside = "; its other partitions advance" if others_advance else ""
    return (
        f"In {tp} member {member.client_id!r} on {member.host.lstrip('/')} is at offset {facts.committed[tp]:,}"
        f"{since(facts, history, tp)}, with {counted(facts.to_read(tp), 'offset')} to read{beside}."
    )


def _evidence_of_next(facts: GroupFacts, member: MemberRow, partition: TopicPartition) -> Evidence:
    batch = facts.next_batches.get(partition)
    return {
        "position": facts.committed[partition],
        "next_record": None if batch is None else batch.first_offset,
        "batch_bytes": None if batch is None else batch.size_bytes,
        "member_id": member.member_id,
        "client_id": member.client_id,
    }


def _commands_at(facts: GroupFacts, partition: TopicPartition, options: str) -> list[str]:
    """Commands that show the next record, and that skip it."""
    batch = facts.next_batches.get(partition)
    at = facts.committed[partition] if batch is None else batch.first_offset
    place, group = option("--topic", f"{partition.topic}:{partition.partition}"), argument(facts.description.group)
    return [
        f"oncelog consume --partition {partition.partition} --from {at} --count 1{options} {argument(partition.topic)}",
        f"oncelog group reset-offsets {place} --to-offset {at + 1} --execute{options} {group}",
    ]


def since(facts: GroupFacts, history: GroupHistory, partition: TopicPartition) -> str:
    moment_ms = facts.last_move_ms(partition)
    if moment_ms is None:
        return f" for at least {duration_text(facts.now_ms - history.since_ms)}"
    return f" since {moment_text(moment_ms)} ({duration_text(facts.now_ms - moment_ms)} ago)"
