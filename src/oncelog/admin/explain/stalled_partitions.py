"""Partitions of a group that have records to read and do not advance, judged by what their member does elsewhere. Pure.

A coordinator knows that a member sends heartbeats, not that it polls: a consumer's heartbeats come from a thread of
their own. A Java or librdkafka consumer that does not poll for max.poll.interval.ms leaves the group by itself, so one
that has stood still for longer and is still there does poll. Where its other partitions advance, the record that comes
next is the reason, and the finding says how to look at it and how to go on behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from oncelog.admin.explain.findings import Cause, Evidence, Finding, Severity, kafka_options, shortened
from oncelog.admin.explain.group_facts import GroupFacts
from oncelog.admin.explain.group_history import GroupHistory
from oncelog.admin.groups import MemberRow
from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.base.ids import TopicPartition
from oncelog.base.notation.shell_words import argument, option
from oncelog.base.text import counted
from oncelog.base.units import MIB

_NEAR_THE_LIMIT: Final = 0.8
_STEADY: Final = frozenset({"Stable"})
DEFAULT_PARTITION_BYTES: Final = MIB
"""max.partition.fetch.bytes of Java's consumers and of most others: a batch that is larger is read by those alone whose
other limits allow it, and they are known to nobody but the consumer."""


def standstill_findings(facts: GroupFacts, options: str = "") -> list[Finding]:
    """Findings about every partition where the group has data to read, by the member that owns it."""
    if not facts.description.members or facts.description.state not in _STEADY:
        return []
    owners = facts.owners
    behind = [partition for partition in facts.partitions if facts.to_read(partition)]
    found = [_not_assigned(facts, where, options) for where in behind if where not in owners]
    by_member: dict[str, list[TopicPartition]] = {}
    for where in behind:
        if where in owners:
            by_member.setdefault(owners[where].member_id, []).append(where)
    for lagging in by_member.values():
        found += _of_member(facts, owners[lagging[0]], lagging, owners, options)
    return found


def _not_assigned(facts: GroupFacts, where: TopicPartition, options: str) -> Finding:
    group = facts.description.group
    return Finding(
        Cause.NOT_ASSIGNED,
        Severity.STUCK,
        str(where),
        [
            f"In {where} it has {counted(facts.to_read(where), 'offset')} to read, and no member is assigned to it: "
            f"its members do not subscribe to {where.topic!r} any more, or a member was left out of the assignment."
        ],
        evidence={"position": facts.committed[where], "to_read": facts.to_read(where)},
        since_ms=facts.last_move_ms(where),
        affected=["nobody else: the group's other partitions have members"],
        clears="It clears when a member subscribes to it.",
        advice="To see what its members read; and, if the group has given this topic up, to forget its offsets there:",
        commands=[
            f"oncelog group describe --members{options} {argument(group)}",
            f"oncelog group delete {option('--topic', f'{where.topic}:{where.partition}')}{options} {argument(group)}",
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
    if history is None:
        return
    moving = [where for where in lagging if history.advances(where, facts.now_ms)]
    still = [where for where in lagging if where not in moving]
    for where in moving:
        yield _busy(facts, history, member, where, options)
    if not still:
        return
    own = [where for where, owner in owners.items() if owner.member_id == member.member_id]
    others_advance = any(history.advances(where, facts.now_ms) for where in own)
    for where in still:
        if is_large(facts, where):
            yield large_batch(facts, history, member, where, others_advance, options)
        elif others_advance:
            yield does_not_advance(facts, history, member, where, options)
    if not others_advance:
        yield _does_not_commit(facts, history, member, still, options)


def _busy(facts: GroupFacts, history: GroupHistory, member: MemberRow, where: TopicPartition, options: str) -> Finding:
    rate = history.rate_a_second(where, facts.now_ms) or 0.0
    pace = f", by {rate:,.1f} offsets a second" if rate else ""
    said = [
        f"In {where} member {member.client_id!r} advances{pace}; its last commit was "
        f"{duration_text(facts.now_ms - (facts.last_move_ms(where) or facts.now_ms))} ago. It has "
        f"{counted(facts.to_read(where), 'offset')} to read."
    ]
    evidence: Evidence = {"offsets_a_second": round(rate, 3), "to_read": facts.to_read(where)}
    batch, limit = facts.next_batches.get(where), facts.quotas.get(member.client_id)
    if batch is not None and limit is not None:
        bytes_a_second = rate * batch.bytes_a_record
        evidence |= {"bytes_a_second": round(bytes_a_second), "consumer_byte_rate": limit}
        if bytes_a_second >= _NEAR_THE_LIMIT * limit:
            said.append(
                f"That is about {bytes_a_second:,.0f} bytes a second, and the quota of client id "
                f"{member.client_id!r} is {limit:,.0f} (consumer_byte_rate, at each broker): the quota holds it back."
            )
            return Finding(
                Cause.QUOTA,
                Severity.STUCK,
                str(where),
                said,
                evidence,
                since_ms=history.commits[where][0].at_ms if history.commits.get(where) else None,
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
        said.append(
            f"With nothing new written it would be done in {duration_text(int(facts.to_read(where) / rate * 1000))}."
        )
    return Finding(Cause.BUSY, Severity.NOTE, str(where), said, evidence)


def _does_not_commit(
    facts: GroupFacts, history: GroupHistory, member: MemberRow, still: list[TopicPartition], options: str
) -> Finding:
    """The finding on a member that is there and of whose partitions none moves."""
    first = still[0]
    timeout_ms = next(
        (
            one.rebalance_timeout_ms
            for generation in reversed(history.generations)
            for one in generation.members
            if one.member_id == member.member_id
        ),
        None,
    )
    idle_ms = facts.now_ms - (facts.last_move_ms(first) or history.since_ms)
    said = [
        f"Member {member.client_id!r} on {member.host.lstrip('/')} has {shortened(still)} and sends heartbeats, but "
        f"has committed nothing new{since(facts, history, first)}, with "
        f"{counted(sum(facts.to_read(where) for where in still), 'offset')} to read."
    ]
    if timeout_ms is not None and 0 < timeout_ms < idle_ms:
        said.append(
            f"That is longer than its max.poll.interval.ms ({duration_text(timeout_ms)}), after which a consumer that "
            "does not poll leaves the group. So it polls: it reads without committing, has paused its partitions, or "
            "tries the same record again and again."
        )
    else:
        limit = "max.poll.interval.ms" if timeout_ms is None else f"{duration_text(timeout_ms)} (max.poll.interval.ms)"
        said.append(
            f"Either it works on what it has been given, and does not poll: then it leaves the group {limit} after its "
            "last poll; or it reads without committing."
        )
    if large := [where for where in still if is_large(facts, where)]:
        said.append(f"In {shortened(large)} the record that comes next may be larger than it takes: see large-batch.")
    return Finding(
        Cause.MEMBER_DOES_NOT_COMMIT,
        Severity.STUCK,
        f"member {member.client_id}",
        said,
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
    )


def does_not_advance(
    facts: GroupFacts, history: GroupHistory, member: MemberRow, where: TopicPartition, options: str
) -> Finding:
    """One partition of a member stands still while others move on."""
    batch = facts.next_batches.get(where)
    said = [
        _where_it_stands(facts, history, member, where, others_advance=True),
        "So it polls, and either has paused this partition, or fails at the record that comes next and tries again.",
    ]
    if batch is not None:
        said.append(
            f"That is offset {batch.first_offset:,}, in a batch of {batch.size_bytes:,} bytes and "
            f"{counted(batch.record_count, 'record')}."
        )
    return Finding(
        Cause.PARTITION_DOES_NOT_ADVANCE,
        Severity.STUCK,
        str(where),
        said,
        evidence=_evidence_of_next(facts, member, where),
        since_ms=facts.last_move_ms(where),
        affected=[f"nobody else: the other partitions of member {member.client_id!r} advance"],
        clears="It clears when the member resumes the partition, or gets past that record; its log says which it is.",
        advice="To look at the record; and, if it cannot be processed, to go on behind it (stop the members first):",
        commands=_commands_at(facts, where, options),
    )


def is_large(facts: GroupFacts, where: TopicPartition) -> bool:
    """True if the batch that comes next is larger than what consumers ask for unless they are told otherwise."""
    batch = facts.next_batches.get(where)
    return batch is not None and batch.size_bytes > DEFAULT_PARTITION_BYTES


def large_batch(
    facts: GroupFacts,
    history: GroupHistory,
    member: MemberRow,
    where: TopicPartition,
    others_advance: bool,
    options: str,
) -> Finding:
    """A partition that stands still in front of more than a consumer may take. No proof where nothing else moves."""
    batch = facts.next_batches[where]
    said = [
        _where_it_stands(facts, history, member, where, others_advance=others_advance),
        f"The record that comes next, offset {batch.first_offset:,}, is in a batch of {batch.size_bytes:,} bytes and "
        f"{counted(batch.record_count, 'record')}; max.partition.fetch.bytes is 1 MiB by default.",
        "Java's consumers since 0.10.1 take the first batch whatever its size. Those before, and those with a limit of "
        "their own (librdkafka: receive.message.max.bytes, others: the size of a response or message), refuse it, say "
        "so in their log, and ask for it again and again.",
    ]
    return Finding(
        Cause.LARGE_BATCH,
        Severity.STUCK if others_advance else Severity.RISK,
        str(where),
        said,
        evidence=_evidence_of_next(facts, member, where),
        since_ms=facts.last_move_ms(where),
        affected=["every consumer of this partition with the same limits, and what it reads from the same broker"],
        clears="It clears when the consumer is started with a limit above that size, or when retention removes the "
        "record.",
        advice="To look at the record; and to go on behind it, without it (stop the members first):",
        commands=_commands_at(facts, where, options),
    )


def _where_it_stands(
    facts: GroupFacts, history: GroupHistory, member: MemberRow, where: TopicPartition, *, others_advance: bool
) -> str:
    beside = "; its other partitions advance" if others_advance else ""
    return (
        f"In {where} member {member.client_id!r} on {member.host.lstrip('/')} is at offset {facts.committed[where]:,}"
        f"{since(facts, history, where)}, with {counted(facts.to_read(where), 'offset')} to read{beside}."
    )


def _evidence_of_next(facts: GroupFacts, member: MemberRow, where: TopicPartition) -> Evidence:
    batch = facts.next_batches.get(where)
    return {
        "position": facts.committed[where],
        "next_record": None if batch is None else batch.first_offset,
        "batch_bytes": None if batch is None else batch.size_bytes,
        "member_id": member.member_id,
        "client_id": member.client_id,
    }


def _commands_at(facts: GroupFacts, where: TopicPartition, options: str) -> list[str]:
    """Commands that show the record that comes next, and that go on behind it."""
    batch = facts.next_batches.get(where)
    at = facts.committed[where] if batch is None else batch.first_offset
    place, group = option("--topic", f"{where.topic}:{where.partition}"), argument(facts.description.group)
    return [
        f"oncelog consume --partition {where.partition} --from {at} --count 1{options} {argument(where.topic)}",
        f"oncelog group reset-offsets {place} --to-offset {at + 1} --execute{options} {group}",
    ]


def since(facts: GroupFacts, history: GroupHistory, where: TopicPartition) -> str:
    moment_ms = facts.last_move_ms(where)
    if moment_ms is None:
        return f" for at least {duration_text(facts.now_ms - history.since_ms)}"
    return f" since {moment_text(moment_ms)} ({duration_text(facts.now_ms - moment_ms)} ago)"
