"""Finds the records that hold a share group up, or that it has lost: who has them, and how often they came (KIP-932).

Pure. Locks are known where a leader tells them; where it does not, what came back by itself tells that a lock ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from oncelog.admin.explain.findings import Cause, Evidence, Finding, Severity, shortened
from oncelog.admin.explain.share_groups.facts import (
    DEAD_LETTER_TOPIC,
    DELIVERY_LIMIT,
    LOCK_DURATION,
    Change,
    ShareGroupFacts,
)
from oncelog.admin.share_deliveries import ShareBatchRow
from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.base.ids import TopicPartition, group_by_key
from oncelog.base.notation.shell_words import argument, option
from oncelog.base.text import counted

_HELD_SHARE: Final = 0.8
"""The share of a lock's time after which its holder counts as slow."""
_LEAST_SHARE: Final = 0.9
"""The share of the lock duration between two returns of a record: sooner it was released."""
_STILL_LOCKS: Final = 1.5
"""Lock durations without a move of the start offset, after which its record holds the group up."""
_MOST_HOLDERS: Final = 20
_MOST_RANGES: Final = 5


def record_findings(facts: ShareGroupFacts, options: str) -> Iterator[Finding]:
    yield from _held(facts, options)
    yield from _locks_expire(facts, options)
    for partition in facts.offsets:
        yield from _redelivered(facts, partition, options)
        yield from _waits_for(facts, partition, options)
    yield from _archived(facts, options)


def _held(facts: ShareGroupFacts, options: str) -> Iterator[Finding]:
    """Locks of members that are gone, and of those that have used up most of their time."""
    by_member: dict[str, dict[TopicPartition, list[ShareBatchRow]]] = {}
    for partition in facts.told:
        for batch in facts.acquired(partition):
            by_member.setdefault(batch.member_id or "", {}).setdefault(partition, []).append(batch)
    shown = 0
    for member_id, places in by_member.items():
        late = {
            partition: batches
            for partition, held in places.items()
            if (batches := [batch for batch in held if _is_late(facts, member_id, batch)])
        }
        if late and shown < _MOST_HOLDERS:
            shown += 1
            yield _holder(facts, member_id, late, options)


def _is_late(facts: ShareGroupFacts, member_id: str, batch: ShareBatchRow) -> bool:
    if facts.member(member_id) is None:
        return True
    since, until = batch.locked_since_ms, batch.locked_until_ms
    return since is not None and until is not None and facts.now_ms - since >= _HELD_SHARE * (until - since)


def _holder(
    facts: ShareGroupFacts, member_id: str, places: dict[TopicPartition, list[ShareBatchRow]], options: str
) -> Finding:
    member = facts.member(member_id)
    batches = [batch for held in places.values() for batch in held]
    records = sum(batch.records for batch in batches)
    ranges = shortened(
        [f"{partition} {_offsets(batch)}" for partition, held in places.items() for batch in held], _MOST_RANGES
    )
    until = [batch.locked_until_ms for batch in batches if batch.locked_until_ms is not None]
    since = [batch.locked_since_ms for batch in batches if batch.locked_since_ms is not None]
    last = ""
    if until:
        last = f"at {moment_text(min(until))}" + (
            f", the last at {moment_text(max(until))}" if len(set(until)) > 1 else ""
        )
    if member is None:
        sentences = [
            f"Member {member_id} holds {counted(records, 'record')} ({ranges}) and is not in the group any more: it "
            "left without giving them back, or its session ended.",
        ]
    else:
        sentences = [
            f"Member {member.client_id!r} on {member.host.lstrip('/')} has held {counted(records, 'record')} "
            f"({ranges}) for {duration_text(facts.now_ms - min(since))}, most of what its locks allow: it is slow, or "
            "will not acknowledge them."
        ]
    sentences.append(f"They come back when their locks end ({LOCK_DURATION}){', ' + last if last else ''}.")
    return Finding(
        Cause.HOLDS_RECORDS,
        Severity.RISK,
        f"member {member.client_id if member else member_id}",
        sentences,
        evidence={
            "member_id": member_id,
            "is_gone": member is None,
            "records": records,
            "clears_at_ms": max(until, default=None),
            "deliveries": max(batch.delivery_count for batch in batches),
        },
        since_ms=min(since, default=None),
        affected=[str(partition) for partition in places],
        clears=f"It clears {last or 'when the locks end'}: then other members get the records.",
        advice="To see all locks:",
        commands=[describe_records(facts, options)],
    )


def _locks_expire(facts: ShareGroupFacts, options: str) -> Iterator[Finding]:
    """Records that came back after a whole lock duration, neither acknowledged nor released."""
    lock_ms = facts.number(LOCK_DURATION)
    expired: dict[TopicPartition, list[Change]] = {}
    before: dict[tuple[TopicPartition, int], Change] = {}
    for change in facts.returned():
        key = change.partition, change.first_offset
        earlier = before.get(key)
        if earlier is not None and change.delivery_count > earlier.delivery_count:
            deliveries = change.delivery_count - earlier.delivery_count
            if change.at_ms - earlier.at_ms >= _LEAST_SHARE * lock_ms * deliveries:
                expired.setdefault(change.partition, []).append(change)
        before[key] = change
    for partition, changes in expired.items():
        records = sum(change.records for change in changes)
        last = changes[-1]
        yield Finding(
            Cause.LOCKS_EXPIRE,
            Severity.RISK,
            str(partition),
            [
                f"In {partition} {counted(records, 'record')} came back within {duration_text(facts.window_ms)} only "
                f"when their locks had ended, {duration_text(lock_ms)} after each delivery ({LOCK_DURATION}); the "
                f"last, {_offsets(last)}, {duration_text(facts.now_ms - last.at_ms)} ago.",
                "A member fetched them, and neither acknowledged nor released them: it takes longer than its locks, "
                "it died, or it drops records without acknowledging them. Each time counts as a delivery.",
            ],
            evidence={"records": records, "last_ms": last.at_ms, "lock_duration_ms": lock_ms},
            since_ms=changes[0].at_ms,
            affected=[member.client_id for member in facts.readers(partition)],
            clears="It clears when members acknowledge in time, renew their locks, or have longer ones.",
            advice="To see what comes back, and to give members more time:",
            commands=[
                describe_records(facts, options),
                f"oncelog group alter{options} {argument(facts.description.group)} "
                f"{option('-c', f'{LOCK_DURATION}={2 * lock_ms}')}",
            ],
        )


def _redelivered(facts: ShareGroupFacts, partition: TopicPartition, options: str) -> Iterator[Finding]:
    """Records whose next delivery is the last, or that are on it."""
    limit = facts.number(DELIVERY_LIMIT)
    near = [batch for batch in facts.undelivered(partition) if batch.delivery_count >= max(2, limit - 1)]
    if not near:
        return
    records = sum(batch.records for batch in near)
    worst = max(near, key=lambda batch: batch.delivery_count)
    letters = facts.dead_letters
    end = f"is archived: no member sees it again, since the group has no topic for dead letters ({DEAD_LETTER_TOPIC})"
    if letters.topic:
        end = f"goes to the topic {letters.topic!r} for dead letters" + (
            ", which cannot take it" if letters.obstacle else ""
        )
    left = limit - worst.delivery_count
    yield Finding(
        Cause.REDELIVERED_REPEATEDLY,
        Severity.RISK,
        str(partition),
        [
            f"In {partition} {counted(records, 'record')} came again and again "
            f"({shortened([_offsets(batch) for batch in near], _MOST_RANGES)}): offset {worst.first_offset:,} was "
            f"delivered {counted(worst.delivery_count, 'time')} of {limit} ({DELIVERY_LIMIT}).",
            f"Every member so far has released it, or has let its lock end. "
            f"{'After one more delivery' if left == 1 else 'Without an acknowledgement'} it {end}.",
        ],
        evidence={
            "records": records,
            "offset": worst.first_offset,
            "deliveries": worst.delivery_count,
            "limit": limit,
            "dead_letter_topic": letters.topic or None,
        },
        since_ms=_first_return_ms(facts, partition, worst),
        no_since="its first return is not within the window, or not in the log any more",
        affected=[member.client_id for member in facts.readers(partition)],
        clears="It clears when a member accepts or rejects it, or at its last delivery.",
        advice="To look at the record; a member that rejects what it cannot use ends this at once:",
        commands=[_consume(partition, worst.first_offset, options), describe_records(facts, options)],
    )


def _first_return_ms(facts: ShareGroupFacts, partition: TopicPartition, batch: ShareBatchRow) -> int | None:
    return next(
        (
            change.at_ms
            for change in facts.returned()
            if change.partition == partition and change.first_offset <= batch.first_offset <= change.last_offset
        ),
        None,
    )


def _waits_for(facts: ShareGroupFacts, partition: TopicPartition, options: str) -> Iterator[Finding]:
    """A start offset that stands still while later records are dealt with."""
    blocking = facts.blocking_first(partition)
    moved_ms = facts.moved_ms(partition)
    if blocking is None or moved_ms is None:
        return
    if facts.now_ms - moved_ms < _STILL_LOCKS * facts.number(LOCK_DURATION):
        return
    offset, done = blocking
    evidence: Evidence = {"offset": offset, "done_after": done}
    holder = next(
        (batch for batch in facts.acquired(partition) if batch.first_offset <= offset <= batch.last_offset), None
    )
    first = next(
        (batch for batch in facts.undelivered(partition) if batch.first_offset <= offset <= batch.last_offset), None
    )
    sentences = [
        f"In {partition} offset {offset:,} has been the first that is not dealt with for "
        f"{duration_text(facts.now_ms - moved_ms)}; {counted(done, 'later record')} {'is' if done == 1 else 'are'}."
    ]
    if holder is not None and holder.member_id is not None:
        member = facts.member(holder.member_id)
        name = f"{member.client_id!r} on {member.host.lstrip('/')}" if member else f"{holder.member_id}, which is gone,"
        evidence |= {"member_id": holder.member_id, "deliveries": holder.delivery_count}
        sentences.append(f"Member {name} holds it, in delivery {holder.delivery_count}: the queue waits for it.")
    elif first is not None:
        evidence |= {"deliveries": first.delivery_count}
        sentences.append(f"It has been delivered {counted(first.delivery_count, 'time')} and came back each time.")
    else:
        sentences.append("A member has it for the first time and keeps it, or none has acquired it yet.")
    yield Finding(
        Cause.WAITS_FOR_RECORD,
        Severity.RISK,
        str(partition),
        sentences,
        evidence=evidence,
        since_ms=moved_ms,
        affected=["nothing else yet: later records are delivered, until too many are in flight"],
        clears="It clears when the record is accepted, rejected, or delivered too often.",
        advice="To look at it, and at who holds it:",
        commands=[_consume(partition, offset, options), describe_records(facts, options)],
    )


def _archived(facts: ShareGroupFacts, options: str) -> Iterator[Finding]:
    limit, letters = facts.number(DELIVERY_LIMIT), facts.dead_letters
    by_partition = group_by_key((change.partition, change) for change in facts.archived())
    for partition, changes in by_partition.items():
        often = [change for change in changes if change.delivery_count >= limit]
        rejected = [change for change in changes if change.delivery_count < limit]
        texts = []
        if rejected:
            texts.append(f"{_count(facts, rejected)} rejected by a member ({_ranges(rejected)})")
        if often:
            texts.append(
                f"{_count(facts, often)} delivered {counted(limit, 'time')} without being accepted ({_ranges(often)})"
            )
        last = changes[-1]
        sentences = [
            f"In {partition} records were archived within {duration_text(facts.window_ms)}: {' and '.join(texts)}; the "
            f"last {duration_text(facts.now_ms - last.at_ms)} ago."
        ]
        is_kept = bool(letters.topic) and not letters.obstacle
        if is_kept:
            sentences.append(f"Copies go to the topic {letters.topic!r}, with the cause in their headers.")
        else:
            sentences.append(
                "No copy was made, and the group does not see them again. The topic still has them, until retention "
                "removes them."
            )
        yield Finding(
            Cause.RECORDS_ARCHIVED,
            Severity.NOTE if is_kept else Severity.RISK,
            str(partition),
            sentences,
            evidence={
                "rejected": _count(facts, rejected),
                "delivered_too_often": _count(facts, often),
                "dead_letter_topic": letters.topic or None,
                "last_ms": last.at_ms,
            },
            since_ms=changes[0].at_ms,
            affected=["whatever these records were for"],
            clears="It does not clear: an archived record is not delivered again, unless start offsets are reset.",
            advice="To look at the last one; and to keep copies from now on:"
            if not is_kept
            else "To look at the copies:",
            commands=[
                *([] if is_kept else [_consume(partition, last.first_offset, options)]),
                f"oncelog consume{options} {argument(letters.topic)} --from beginning --exit"
                if is_kept
                else f"oncelog group alter{options} {argument(facts.description.group)} "
                f"{option('-c', f'{DEAD_LETTER_TOPIC}=dlq.NAME')}",
            ],
        )


def _count(facts: ShareGroupFacts, changes: Iterable[Change]) -> int:
    return sum(facts.records_in(change) for change in changes)


def _ranges(changes: Sequence[Change]) -> str:
    return shortened([_offsets(change) for change in changes[::-1]], _MOST_RANGES)


def _offsets(batch: ShareBatchRow | Change) -> str:
    first, last = batch.first_offset, batch.last_offset
    return f"offset {first:,}" if first == last else f"offsets {first:,} to {last:,}"


def describe_records(facts: ShareGroupFacts, options: str) -> str:
    return f"oncelog group describe --deliveries{options} {argument(facts.description.group)}"


def _consume(partition: TopicPartition, offset: int, options: str) -> str:
    place = f"--partition {partition.partition} --from {offset} --count 1"
    return f"oncelog consume{options} {argument(partition.topic)} {place}"
