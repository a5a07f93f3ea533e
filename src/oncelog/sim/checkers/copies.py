"""H19: what a transactional copy reads, it writes exactly once, as far as its group has committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from oncelog.sim.checkers.history import GroupPartition
from oncelog.sim.checkers.history_index import HistoryIndex


def not_exactly_once(index: HistoryIndex) -> Iterator[str]:
    """A record copied twice, not at all though the group is past it, or though it is not in the source."""
    history = index.history
    for source, target, group in history.copies:
        copied = Counter(
            record.value.partition("|")[2]
            for partition, records in history.drained.items()
            if partition.topic == target
            for record in records
        )
        yield from (f"{value} {count} times in {target}" for value, count in copied.items() if count > 1)
        there: set[str] = set()
        for partition, records in history.drained.items():
            if partition.topic != source:
                continue
            reads_next = (history.committed_offsets or {}).get(GroupPartition(group, partition), 0)
            there.update(record.value for record in records)
            for record in records:
                if record.offset < reads_next and record.value not in copied:
                    where = f"{partition}@{record.offset}"
                    yield f"{record.value} at {where} is not in {target}, {group} reads {reads_next}"
        yield from (f"{value} is in {target} and not in {source}" for value in copied if value not in there)
