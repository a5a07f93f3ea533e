"""Pairs the records of a copy with those of its source by content, and counts what a reader would skip or repeat.

Both sides are windows in offset order. MirrorMaker copies in order, leaves out what its consumer does not see, and may
begin again at an earlier offset after a restart. So a copied record pairs with the next source record of its content,
or else with the last such record before it. A record without a counterpart pairs with nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.base.ids import group_by_key


class Fingerprint(NamedTuple):
    """A record's offset and the digest of its content."""

    offset: int
    digest: bytes


class Pair(NamedTuple):
    """The offset of a copied record, and that of its original."""

    downstream: int
    upstream: int


@dataclass(frozen=True, slots=True)
class Reading:
    """The effect on a group that has read all before ``position`` and continues at an offset of the copy."""

    skipped: int
    first_skipped: int | None
    """The upstream offset of the first record that the group would never read."""
    repeated: int


def align(source: Sequence[Fingerprint], target: Sequence[Fingerprint]) -> list[Pair]:
    places = group_by_key((record.digest, index) for index, record in enumerate(source))
    pairs: list[Pair] = []
    last = -1
    for record in target:
        indexes = places.get(record.digest)
        if indexes is None:
            continue
        at = bisect_right(indexes, last)
        last = indexes[min(at, len(indexes) - 1)]
        pairs.append(Pair(record.offset, source[last].offset))
    return pairs


def reading(pairs: Sequence[Pair], position: int, downstream: int) -> Reading:
    """Compare a start at ``downstream`` with a group that has read everything before ``position`` at the source."""
    unread_before = {pair.upstream for pair in pairs if pair.downstream < downstream and pair.upstream >= position}
    read_from_there = {pair.upstream for pair in pairs if pair.downstream >= downstream}
    skipped = unread_before - read_from_there
    repeated = sum(pair.downstream >= downstream and pair.upstream < position for pair in pairs)
    return Reading(len(skipped), min(skipped, default=None), repeated)
