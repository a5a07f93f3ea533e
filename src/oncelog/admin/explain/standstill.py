"""Partitions of a group that have records to read and do not advance, judged by what their member does elsewhere. Pure.

A coordinator knows that a member sends heartbeats, not that it polls: a consumer's heartbeats come from a thread of
their own. What can be inferred: a Java or librdkafka consumer that does not poll for max.poll.interval.ms leaves the
group by itself, so one that has stood still for longer and is still there does poll.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from oncelog.admin.explain.findings import Cause, Evidence, Finding, Severity
from oncelog.admin.explain.group_facts import GroupFacts
from oncelog.admin.explain.group_history import GroupHistory
from oncelog.admin.explain.words import counted, shortened
from oncelog.admin.groups import MemberRow
from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.base.ids import TopicPartition
from oncelog.base.units import MIB

DEFAULT_PARTITION_BYTES: Final = MIB
"""max.partition.fetch.bytes of Java's consumers and of most others."""
_NEAR_THE_LIMIT: Final = 0.8
_STEADY: Final = frozenset({"Stable"})


def standstill_findings(facts: GroupFacts, options: str = "") -> list[Finding]:
    """Findings about every partition where the group has data to read, by the member that owns it."""
    if not facts.description.members or facts.description.state not in _STEADY:
        return []
    owners = facts.owners
    behind = [where for where in facts.partitions if facts.to_read(where)]
    found = [_not_assigned(facts, where) for where in behind if where not in owners]
    by_member: dict[str, list[TopicPartition]] = {}
    for where in behind:
        if where in owners:
            by_member.setdefault(owners[where].member_id, []).append(where)
    for lagging in by_member.values():
        found += _of_member(facts, owners[lagging[0]], lagging, owners, options)
    return found


def _not_assigned(facts: GroupFacts, where: TopicPartition) -> Finding:
    return Finding(
        Cause.NOT_ASSIGNED,
        Severity.STUCK,
        str(where),
        [
            f"In {where} it has {counted(facts.to_read(where), 'offset')} to read, and no member is assigned to it: "
            f"its members do not subscribe to {where.topic!r} any more, or a member was left out of the assignment."
        ],
        clears="It clears when a member subscribes to it; if the group has given it up, its offset may be deleted.",
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
        yield _busy(facts, history, member, where)
    if not still:
        return
    own = [where for where, owner in owners.items() if owner.member_id == member.member_id]
    if any(history.advances(where, facts.now_ms) for where in own):
        for where in still:
            yield _does_not_advance(facts, history, member, where, options)
    else:
        yield _does_not_commit(facts, history, member, still)


def _busy(facts: GroupFacts, history: GroupHistory, member: MemberRow, where: TopicPartition) -> Finding:
    rate = history.rate_a_second(where, facts.now_ms) or 0.0
    pace = f", by {rate:,.1f} offsets a second" if rate else ""
    said = [
        f"In {where} member {member.client_id!r} advances{pace}; its last commit was "
        f"{duration_text(facts.now_ms - (_since_ms(history, where) or facts.now_ms))} ago. It has "
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
                affected=[f"everybody with client id {member.client_id!r}"],
                clears="It clears when the quota is raised, or when nothing more is written.",
            )
    if rate > 0:
        said.append(
            f"With nothing new written it would be done in {duration_text(int(facts.to_read(where) / rate * 1000))}."
        )
    return Finding(Cause.BUSY, Severity.NOTE, str(where), said, evidence)


def _does_not_advance(
    facts: GroupFacts, history: GroupHistory, member: MemberRow, where: TopicPartition, options: str
) -> Finding:
    """One partition of a member stands still while others move on."""
    position, batch = facts.committed[where], facts.next_batches.get(where)
    said = [
        f"In {where} member {member.client_id!r} on {member.host.lstrip('/')} is at offset {position:,}"
        f"{_since(facts, history, where)}, with {counted(facts.to_read(where), 'offset')} to read; its other "
        "partitions advance.",
        "So it polls, and either has paused this partition, or fails at the record that comes next and tries again.",
    ]
    if batch is not None:
        said.append(
            f"That is offset {batch.first_offset:,}, in a batch of {batch.size_bytes:,} bytes and "
            f"{counted(batch.record_count, 'record')}."
        )
    large = batch is not None and batch.size_bytes > DEFAULT_PARTITION_BYTES
    if large:
        said.append(
            "The batch is larger than max.partition.fetch.bytes usually is (1 MiB). Consumers since 0.10.1 take it all "
            "the same; older ones, and those with a limit of their own, stop here."
        )
    return Finding(
        Cause.LARGE_BATCH if large else Cause.PARTITION_DOES_NOT_ADVANCE,
        Severity.STUCK,
        str(where),
        said,
        evidence={
            "position": position,
            "next_record": None if batch is None else batch.first_offset,
            "batch_bytes": None if batch is None else batch.size_bytes,
            "member_id": member.member_id,
        },
        since_ms=_since_ms(history, where),
        clears="It clears when the member resumes the partition, or gets past that record; its log says which it is.",
        advice="To look at the record:",
        commands=[
            f"oncelog consume {where.topic} --partition {where.partition} --from "
            f"{position if batch is None else batch.first_offset} --count 1{options}"
        ],
    )


def _does_not_commit(
    facts: GroupFacts, history: GroupHistory, member: MemberRow, still: list[TopicPartition]
) -> Finding:
    """Nothing of a member moves, and it is still there."""
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
    idle_ms = facts.now_ms - (_since_ms(history, first) or history.since_ms)
    said = [
        f"Member {member.client_id!r} on {member.host.lstrip('/')} has {shortened(still)} and sends heartbeats, but "
        f"has committed nothing new{_since(facts, history, first)}, with "
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
        since_ms=_since_ms(history, first),
        clears="It clears when the member commits, or leaves and another one takes over.",
    )


def _since_ms(history: GroupHistory, where: TopicPartition) -> int | None:
    found = history.last_move(where)
    return None if found is None else found.at_ms


def _since(facts: GroupFacts, history: GroupHistory, where: TopicPartition) -> str:
    moment_ms = _since_ms(history, where)
    if moment_ms is None:
        return f" for at least {duration_text(facts.now_ms - history.since_ms)}"
    return f" since {moment_text(moment_ms)} ({duration_text(facts.now_ms - moment_ms)} ago)"
