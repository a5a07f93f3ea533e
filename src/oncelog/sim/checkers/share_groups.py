"""H22 to H24: at the end every record before a share group's start offset was settled, and dead letters are complete.

The wire has the deliveries and acknowledgements, the history the records. Each fetch without an answer that got lost
since a record can exist may have been a delivery of it, so after many of them it may be archived unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.sim.checkers.history import GroupPartition, SeenRecord
from oncelog.sim.checkers.wire.share_records import ACCEPT, REJECT, RecordSeen, ShareLog
from oncelog.sim.checkers.wire.share_sessions import ShareKey
from oncelog.sim.checkers.wire.shares import STOLEN, Shares

LOST: Final = "H22 record of a share group lost"
LETTER_MISSING: Final = "H23 dead letter missing"
LETTER_FOR_NOTHING: Final = "H24 dead letter for nothing"


class DeadLetterSeen(NamedTuple):
    key: GroupPartition
    offset: int


@dataclass(slots=True)
class ShareGroupsSeen:
    """``starts``: the groups' start offsets at the end. ``altered``: groups whose offsets administrators change."""

    topic_ids: dict[str, bytes] = field(default_factory=dict)
    starts: dict[GroupPartition, int] = field(default_factory=dict)
    altered: set[str] = field(default_factory=set)
    with_dead_letters: set[str] = field(default_factory=set)
    dead_letters: list[DeadLetterSeen] = field(default_factory=list)
    # A broker has reported that it could not write dead letters.
    letters_failed: bool = False


def check_share_groups(
    shares: Shares,
    seen: ShareGroupsSeen,
    drained: Mapping[TopicPartition, Sequence[SeenRecord]],
    log_starts: Mapping[TopicPartition, int],
) -> dict[str, list[str]]:
    instances: dict[str, list[str]] = {
        STOLEN: list(_late_acknowledgements(shares, seen, log_starts)),
        LOST: [],
        LETTER_MISSING: [],
        LETTER_FOR_NOTHING: [],
    }
    letters = {(key, offset) for key, offset in seen.dead_letters}
    for key, start in seen.starts.items():
        if key.group in seen.altered:
            continue
        partition = key.partition
        share_key = ShareKey(key.group, seen.topic_ids[partition.topic], partition.partition)
        log = shares.logs.get(share_key, ShareLog())
        most, unseen = shares.limits.deliveries, partial(shares.unseen, share_key)
        offsets = [record.offset for record in drained.get(partition, ()) if record.offset < start]
        instances[LOST] += _lost(key, log, offsets, unseen, most)
        if key.group in seen.with_dead_letters:
            mine = {offset for letter, offset in letters if letter == key}
            if not seen.letters_failed:
                instances[LETTER_MISSING] += _missing(key, log, offsets, mine)
            instances[LETTER_FOR_NOTHING] += _for_nothing(key, log, mine, unseen, most)
    return {rule: texts for rule, texts in instances.items() if texts}


def _late_acknowledgements(
    shares: Shares, seen: ShareGroupsSeen, log_starts: Mapping[TopicPartition, int]
) -> Iterator[str]:
    names = {topic_id: name for name, topic_id in seen.topic_ids.items()}
    for key, offset, text in shares.late_acknowledgements:
        partition = TopicPartition(TopicName(names.get(key.topic_id, "")), key.partition)
        if offset >= log_starts.get(partition, 0):
            yield text


def _lost(
    key: GroupPartition, log: ShareLog, offsets: Collection[int], unseen: Callable[[int], int], most: int
) -> Iterator[str]:
    for offset in offsets:
        record = log.records.get(offset, RecordSeen())
        if record.settled is None and not record.is_open and record.max_count + unseen(offset) < most:
            yield (
                f"{key.partition}@{offset} of {key.group} was not settled (deliveries: {record.max_count} of {most}), "
                f"and the group starts behind it"
            )


def _missing(key: GroupPartition, log: ShareLog, offsets: Collection[int], letters: Collection[int]) -> Iterator[str]:
    for offset in offsets:
        record = log.records.get(offset)
        settled = None if record is None else record.settled
        if record is None or settled is None or settled.kind != REJECT or offset in letters:
            continue
        if record.attempts == 1 and not record.is_open:
            yield f"{key.partition}@{offset} of {key.group}, rejected by {settled.member}"


def _for_nothing(
    key: GroupPartition, log: ShareLog, letters: Collection[int], unseen: Callable[[int], int], most: int
) -> Iterator[str]:
    for offset in letters:
        record = log.records.get(offset, RecordSeen())
        is_at_limit = record.max_count + unseen(offset) >= most
        if record.settled is not None and record.settled.kind == ACCEPT and not record.is_rejected and not is_at_limit:
            yield f"{key.partition}@{offset} of {key.group}, accepted by {record.settled.member}"
