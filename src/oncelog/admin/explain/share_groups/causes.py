"""Finds the causes of a stuck share group in its coordinator's state and its start offsets (KIP-932). Pure.

The group is judged as a whole first, then each partition. Causes in single records are in ``record_causes``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oncelog.admin.explain.findings import Cause, Finding, Severity, shortened, with_partitions
from oncelog.admin.explain.group_causes import not_permitted
from oncelog.admin.explain.share_groups.facts import (
    DEAD_LETTER_TOPIC,
    LOCK_DURATION,
    MOST_LOCKS,
    OFFSET_RESET,
    TOPIC_TAKES_THEM,
    ShareGroupFacts,
)
from oncelog.admin.explain.share_groups.record_causes import describe_records, record_findings
from oncelog.admin.share_groups import TURN_ON
from oncelog.admin.transactions.durations import duration_text
from oncelog.base.ids import TopicPartition
from oncelog.base.notation.shell_words import argument, option
from oncelog.base.text import counted

_LATEST: Final = "latest"
_PATIENCE: Final = 2
"""Lock durations without a change after which nothing can be under way: a record that is fetched comes back sooner."""


def share_group_findings(facts: ShareGroupFacts, options: str = "") -> list[Finding]:
    """Everything that blocks the group, or seems to. ``options`` name the cluster in the commands."""
    if not facts.description.has_members_shown:
        return [_off(facts)]
    whole = [not_permitted(facts.denied, options), _no_members(facts, options), _dead_letters(facts, options)]
    places = [finding for partition in facts.offsets for finding in _partition(facts, partition, options)]
    findings = [*(finding for finding in whole if finding is not None), *places, *record_findings(facts, options)]
    return with_partitions(findings, facts.partitions)


def _off(facts: ShareGroupFacts) -> Finding:
    described = facts.description
    return Finding(
        Cause.SHARE_GROUPS_OFF,
        Severity.STUCK,
        described.group,
        [
            f"It is a share group in state {described.state}, and share groups are off in this cluster: the feature "
            "share.version is 0. No member can join, fetch or acknowledge.",
        ],
        evidence={"state": described.state},
        affected=["every share group of the cluster"],
        clears="It clears when an administrator upgrades the feature.",
        advice=f"{TURN_ON[0].upper()}{TURN_ON[1:]}",
    )


def _no_members(facts: ShareGroupFacts, options: str) -> Finding | None:
    if facts.description.members:
        return None
    waiting = [partition for partition in facts.offsets if facts.to_deliver(partition)]
    sentences = ["It has no members: no consumer of this share group runs."]
    if waiting:
        records = sum(facts.to_deliver(partition) or 0 for partition in waiting)
        sentences.append(f"It has {counted(records, 'offset')} to deliver in {counted(len(waiting), 'partition')}.")
    last = [moment for partition in facts.offsets if (moment := facts.written_ms(partition)) is not None]
    since_ms = max(last, default=None)
    if since_ms is not None:
        sentences.append(f"Its last acknowledgement was {duration_text(facts.now_ms - since_ms)} ago, or earlier.")
    return Finding(
        Cause.NO_MEMBERS,
        Severity.STUCK if waiting else Severity.NOTE,
        facts.description.group,
        sentences,
        evidence={"partitions_behind": len(waiting)},
        since_ms=since_ms,
        affected=["everything that waits for what this group does"] if waiting else [],
        clears="It clears when a consumer of the group is started.",
        advice="To see where it is:" if waiting else "",
        commands=[_describe(facts, options)] if waiting else [],
    )


def _dead_letters(facts: ShareGroupFacts, options: str) -> Finding | None:
    letters = facts.dead_letters
    if not letters.obstacle:
        return None
    commands = [_alter(facts, f"{DEAD_LETTER_TOPIC}=dlq.NAME", options)]
    if TOPIC_TAKES_THEM in letters.obstacle:
        commands = [
            f"oncelog topic alter{options} {argument(letters.topic)} {option('-c', f'{TOPIC_TAKES_THEM}=true')}"
        ]
    elif "does not exist" in letters.obstacle:
        commands = [
            f"oncelog topic create{options} {argument(letters.topic)} {option('-c', f'{TOPIC_TAKES_THEM}=true')}"
        ]
    elif "share.version" in letters.obstacle:
        commands = []
    return Finding(
        Cause.DEAD_LETTERS_LOST,
        Severity.RISK,
        facts.description.group,
        [
            f"Its dead letters are to go to topic {letters.topic!r} ({DEAD_LETTER_TOPIC}), and cannot: "
            f"{letters.obstacle}.",
            "A record that is rejected, or delivered too often, is archived all the same: no copy of it is made.",
        ],
        evidence={"topic": letters.topic, "obstacle": letters.obstacle},
        no_since="a configuration has no time",
        affected=["records that are rejected or delivered too often"],
        clears="It clears when the topic can take them; records archived before are not copied later.",
        advice="To let it take them:" if commands else "Dead letters begin with share.version 2 (Apache Kafka 4.4).",
        commands=commands,
    )


def _partition(facts: ShareGroupFacts, partition: TopicPartition, options: str) -> Iterator[Finding]:
    offset, waiting = facts.offsets[partition], facts.to_deliver(partition)
    if offset.start_offset is None:
        if offset.log_end is not None and offset.log_start is not None and offset.log_end > offset.log_start:
            yield _not_started(facts, partition, options)
        return
    limit = facts.number(MOST_LOCKS)
    row = facts.told.get(partition)
    if row is not None and row.most_in_flight is not None:
        limit = row.most_in_flight
    in_flight = facts.in_flight(partition)
    if in_flight >= limit:
        yield _too_many(facts, partition, in_flight, limit, options)
    elif waiting and facts.readers(partition):
        yield from _nothing_acquired(facts, partition, waiting, options)


def _not_started(facts: ShareGroupFacts, partition: TopicPartition, options: str) -> Finding:
    reset, offset = facts.settings.get(OFFSET_RESET, _LATEST), facts.offsets[partition]
    sentences = [
        f"In {partition} it has no start offset yet: no record there has been acknowledged, and no lock has ended. "
        f"Unless a member holds its first records now, it begins at its first fetch, where {OFFSET_RESET} says: "
        f"{reset!r}."
    ]
    if reset == _LATEST:
        records = (offset.log_end or 0) - (offset.log_start or 0)
        sentences.append(
            f"With {_LATEST!r}, the default, the {counted(records, 'offset')} before that fetch are never delivered."
        )
    return Finding(
        Cause.NOTHING_ACQUIRED,
        Severity.NOTE,
        str(partition),
        sentences,
        evidence={"offset_reset": reset},
        no_since="nothing is recorded before the first acknowledgement",
        clears="It clears with the first acknowledgement.",
        advice="To begin with the first record there is, before any member has fetched:",
        commands=[_alter(facts, f"{OFFSET_RESET}=earliest", options)],
    )


def _too_many(facts: ShareGroupFacts, partition: TopicPartition, in_flight: int, limit: int, options: str) -> Finding:
    offset, first = facts.offsets[partition], facts.first_open(partition)
    holders = {batch.member_id for batch in facts.acquired(partition)} - {None}
    sentences = [
        f"In {partition} {counted(in_flight, 'offset')} are in flight, from offset {first:,} "
        f"to the last one acquired, and {limit:,} are allowed ({MOST_LOCKS}).",
        "No record beyond is delivered until the first ones are acknowledged: only those that come back are.",
    ]
    return Finding(
        Cause.TOO_MANY_IN_FLIGHT,
        Severity.STUCK,
        str(partition),
        sentences,
        evidence={
            "in_flight": in_flight,
            "limit": limit,
            "first_offset": first,
            "holders": len(holders),
            "lag": offset.lag,
        },
        since_ms=facts.moved_ms(partition),
        no_since="the log of the share coordinator no longer has when the records before were dealt with",
        affected=[f"every member that reads {partition}"],
        clears=f"It clears when the records from {first:,} on are dealt with, or their locks end.",
        advice="To see who holds them; more records at once need more memory of their broker:",
        commands=[
            describe_records(facts, options),
            _alter(facts, f"{MOST_LOCKS}={2 * limit}", options),
        ],
    )


def _nothing_acquired(
    facts: ShareGroupFacts, partition: TopicPartition, waiting: int, options: str
) -> Iterator[Finding]:
    """Members that do not fetch: an acquired record is acknowledged, or its lock ends, and both are written."""
    written_ms, lock_ms = facts.written_ms(partition), facts.number(LOCK_DURATION)
    if written_ms is None or facts.acquired(partition):
        return
    if facts.now_ms - written_ms < _PATIENCE * lock_ms:
        return
    readers = facts.readers(partition)
    named = shortened([f"{member.client_id!r} on {member.host.lstrip('/')}" for member in readers], 3)
    sentences = [
        f"In {partition} {counted(waiting, 'offset')} wait to be delivered, and nothing has been acknowledged or has "
        f"come back for {duration_text(facts.now_ms - written_ms)}, although {counted(len(readers), 'member')} may "
        f"fetch from it ({named}).",
    ]
    if partition in facts.told:
        sentences.append("Its leader says that no member holds a record: the members do not fetch.")
    else:
        sentences.append(
            f"A record that is acquired comes back after {duration_text(lock_ms)} ({LOCK_DURATION}): the members do "
            "not fetch, or one renews its locks again and again, which is not recorded."
        )
    yield Finding(
        Cause.NOTHING_ACQUIRED,
        Severity.STUCK,
        str(partition),
        sentences,
        evidence={"to_deliver": waiting, "members": len(readers)},
        since_ms=written_ms,
        affected=[member.client_id for member in readers],
        clears="It clears when a member polls again.",
        advice="The members' own logs say what they do. To see who they are:",
        commands=[f"{_describe(facts, options)} --members"],
    )


def _alter(facts: ShareGroupFacts, setting: str, options: str) -> str:
    return f"oncelog group alter{options} {argument(facts.description.group)} {option('-c', setting)}"


def _describe(facts: ShareGroupFacts, options: str) -> str:
    return f"oncelog group describe{options} {argument(facts.description.group)}"
