"""A partition that stands still in front of a record: the record that comes next, and the way past it. Pure."""

from __future__ import annotations

from typing import Final

from oncelog.admin.explain.findings import Cause, Evidence, Finding, Severity
from oncelog.admin.explain.group_facts import GroupFacts
from oncelog.admin.explain.group_history import GroupHistory
from oncelog.admin.explain.words import counted
from oncelog.admin.groups import MemberRow
from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.base.ids import TopicPartition
from oncelog.base.notation.shell_words import argument, option
from oncelog.base.units import MIB

DEFAULT_PARTITION_BYTES: Final = MIB
"""max.partition.fetch.bytes of Java's consumers and of most others: a batch that is larger is read by those alone whose
other limits allow it, and they are known to nobody but the consumer."""


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
        since_ms=since_ms(history, where),
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
        since_ms=since_ms(history, where),
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


def since_ms(history: GroupHistory, where: TopicPartition) -> int | None:
    found = history.last_move(where)
    return None if found is None else found.at_ms


def since(facts: GroupFacts, history: GroupHistory, where: TopicPartition) -> str:
    moment_ms = since_ms(history, where)
    if moment_ms is None:
        return f" for at least {duration_text(facts.now_ms - history.since_ms)}"
    return f" since {moment_text(moment_ms)} ({duration_text(facts.now_ms - moment_ms)} ago)"
