"""Explains assigned partitions without a committed offset, member by member. Pure.

Only the member knows where it reads there, so the number of offsets left to read is unknown, never 0. A record that was
written while the member had the partition, and for longer than its max.poll.interval.ms ago, proves that the member
reads without committing, has paused the partition, or fails at a record again and again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oncelog.admin.explain.findings import Cause, Finding, Severity, shortened
from oncelog.admin.explain.group_facts import GroupFacts, Growth
from oncelog.admin.group_descriptions import MemberRow
from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.base.ids import TopicPartition
from oncelog.base.notation.shell_words import argument, option
from oncelog.base.text import counted
from oncelog.base.units import MINUTE_MS

MOST_NOTES: Final = 20
DEFAULT_POLL_INTERVAL_MS: Final = 5 * MINUTE_MS
"""max.poll.interval.ms of a member whose own is not in the coordinator's recent records."""


def uncommitted_findings(facts: GroupFacts, options: str = "") -> Iterator[Finding]:
    """All members that do not commit, and notes on the first of those that have not committed yet."""
    uncommitted, by_member = facts.uncommitted, dict[str, list[TopicPartition]]()
    members = {member.member_id: member for member in facts.description.members}
    for partition, owner in facts.owners.items():
        if partition in uncommitted:
            by_member.setdefault(owner.member_id, []).append(partition)
    fresh: dict[str, list[TopicPartition]] = {}
    for member_id, partitions in by_member.items():
        stuck = [partition for partition in partitions if _outlasts_a_poll(facts, member_id, partition)]
        if stuck:
            yield _does_not_commit(facts, members[member_id], stuck, options)
        if len(stuck) < len(partitions):
            stuck_set = frozenset(stuck)
            fresh[member_id] = [partition for partition in partitions if partition not in stuck_set]
    noted = list(fresh)[:MOST_NOTES]
    for member_id in noted:
        yield _nothing_yet(fresh[member_id], f"by member {members[member_id].client_id!r}")
    others = [partition for member_id in list(fresh)[MOST_NOTES:] for partition in fresh[member_id]]
    if others:
        # As many notes as a large group has members would hide all others.
        yield _nothing_yet(others, f"by {counted(len(fresh) - MOST_NOTES, 'more member')}")


def _outlasts_a_poll(facts: GroupFacts, member_id: str, partition: TopicPartition) -> bool:
    growth = facts.growth.get(partition)
    return growth is not None and facts.now_ms - growth.at_ms > _poll_interval_ms(facts, member_id)


def _poll_interval_ms(facts: GroupFacts, member_id: str) -> int:
    interval_ms = facts.rebalance_timeout_ms(member_id)
    return interval_ms if interval_ms is not None and interval_ms > 0 else DEFAULT_POLL_INTERVAL_MS


def _nothing_yet(partitions: list[TopicPartition], by_members: str) -> Finding:
    return Finding(
        Cause.NOTHING_COMMITTED,
        Severity.NOTE,
        shortened(partitions),
        [
            f"In {shortened(partitions)} nothing has been committed yet {by_members}: "
            "only a member knows where it reads."
        ],
        clears="It clears with its first commit.",
        partitions=tuple(partitions),
    )


def _does_not_commit(facts: GroupFacts, member: MemberRow, partitions: list[TopicPartition], options: str) -> Finding:
    growths = {partition: facts.growth[partition] for partition in partitions}
    first_ms = min(growth.at_ms for growth in growths.values())
    interval_ms, is_own = _poll_interval_ms(facts, member.member_id), facts.rebalance_timeout_ms(member.member_id)
    interval = f"{duration_text(interval_ms)}{'' if is_own else ', the default'}"
    first = partitions[0]
    return Finding(
        Cause.NOTHING_COMMITTED,
        Severity.STUCK,
        f"member {member.client_id}",
        [
            f"Member {member.client_id!r} on {member.host.lstrip('/')} has {shortened(partitions)} and has never "
            f"committed there. At least {counted(_written(facts, growths), 'offset')} were written while it had "
            f"{'it' if len(partitions) == 1 else 'them'}, the first at {moment_text(first_ms)} "
            f"({duration_text(facts.now_ms - first_ms)} ago).",
            f"This is longer than max.poll.interval.ms ({interval}), after which a consumer that does not poll leaves "
            "the group. So it polls: it reads without committing, has paused its partitions, or tries the same record "
            "again and again. How much it has to read is not known: no offset says where it is.",
        ],
        evidence={
            "member_id": member.member_id,
            "client_id": member.client_id,
            "host": member.host,
            "max_poll_interval_ms": is_own,
            "written_since": _written(facts, growths),
        },
        since_ms=first_ms,
        affected=[f"everything that waits for {shortened(partitions)}"],
        clears="It clears with its first commit; a consumer that keeps its offsets elsewhere never commits.",
        advice="Its own log says what it does. To see the group; and the records that it has not committed:",
        commands=[
            f"oncelog group describe --members{options} {argument(facts.description.group)}",
            f"oncelog consume {option('--partition', str(first.partition))} --from {growths[first].offset} --count 1"
            f"{options} {argument(first.topic)}",
        ],
        partitions=tuple(partitions),
    )


def _written(facts: GroupFacts, growths: dict[TopicPartition, Growth]) -> int:
    return sum(
        bounds.last_stable_offset - growth.offset
        for partition, growth in growths.items()
        if (bounds := facts.partitions[partition].bounds) is not None
    )
