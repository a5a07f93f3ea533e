"""Rules of committed offsets: in transactions (H10) and outside (H17), what they claim (H18), that they stay (H21)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from oncelog.sim.checkers.history import Commit, GroupPartition, RecordedOutcome, Transaction
from oncelog.sim.checkers.history_index import HistoryIndex


def beside_the_data(index: HistoryIndex) -> Iterator[str]:
    """The group's offset is not that of the last visible transaction."""
    committed = index.history.committed_offsets
    if committed is None:
        return
    plain = {commit.key for commit in index.history.commits}
    expected: dict[GroupPartition, int] = {}
    possible: dict[GroupPartition, set[int]] = {}
    for transaction in index.history.transactions:
        shown = _shown(index, transaction)
        for key, offset in transaction.offsets.items():
            if shown:
                expected[key] = max(offset, expected.get(key, 0))
            elif shown is None:
                possible.setdefault(key, set()).add(offset)
    keys = expected.keys() | possible.keys() | {key for key, offset in committed.items() if offset}
    for key in sorted(keys - plain):
        if key.partition.topic in index.deleted:
            continue
        found, said = committed.get(key, 0), expected.get(key, 0)
        if found != said and not (found > said and found in possible.get(key, ())):
            yield f"{key.group} of {key.partition}: {found} committed, the data says {said}"


def _shown(index: HistoryIndex, transaction: Transaction) -> bool | None:
    """True if the transaction was committed; None when nothing tells."""
    if transaction.outcome is not RecordedOutcome.UNKNOWN:
        return transaction.outcome is RecordedOutcome.COMMITTED
    if any(write[1] in index.visible for write in transaction.writes):
        return True
    return None if all(index.excused(write) for write in transaction.writes) else False


def lost_commits(index: HistoryIndex) -> Iterator[str]:
    """A group's offset is neither the one acknowledged last nor one that may have been committed since."""
    committed = index.history.committed_offsets
    if committed is None:
        return
    by_key: dict[GroupPartition, list[Commit]] = {}
    for commit in index.history.commits:
        by_key.setdefault(commit.key, []).append(commit)
    transactional: dict[GroupPartition, set[int]] = {}
    for transaction in index.history.transactions:
        if transaction.outcome is not RecordedOutcome.ABORTED:
            for key, offset in transaction.offsets.items():
                transactional.setdefault(key, set()).add(offset)
    for key in sorted(by_key):
        if key.partition.topic in index.deleted:
            continue
        found = committed.get(key)
        last = max((commit.asked_at for commit in by_key[key] if commit.answered_at is not None), default=None)
        # An unanswered request may arrive late, on an old connection: at any time after it was asked for.
        possible = {
            commit.offset
            for commit in by_key[key]
            if commit.answered_at is None or last is None or commit.answered_at >= last
        } | transactional.get(key, set())
        if found not in possible and not (found is None and last is None):
            yield f"{key.group} of {key.partition}: {found} committed, acknowledged was one of {sorted(possible)}"


def unread_before_commit(index: HistoryIndex) -> Iterator[str]:
    """A group has committed an offset past a record that none of its members got."""
    committed = index.history.committed_offsets
    if committed is None or not index.history.followed_groups:
        return
    polled: dict[GroupPartition, set[int]] = {}
    for poll in index.history.polls:
        if poll.group in index.history.followed_groups:
            offsets = polled.setdefault(GroupPartition(poll.group or "", poll.partition), set())
            offsets.update([record[0] for record in poll.records])
    for key, offset in sorted(committed.items()):
        if key.group not in index.history.followed_groups or key.partition.topic in index.deleted:
            continue
        got = polled.get(key, set())
        unread = [r.offset for r in index.history.drained.get(key.partition, ()) if r[0] < offset and r[0] not in got]
        if unread:
            yield f"{key.group} committed {key.partition}@{offset}, {unread[0]} and {len(unread) - 1} more are unread"


def went_back(index: HistoryIndex) -> Iterator[str]:
    """OffsetFetch answered less than an offset whose transaction had been committed for its client before it asked."""
    if not index.history.offset_reads:
        return
    ends: dict[GroupPartition, list[tuple[int, int]]] = {}
    for key, offset, answered_at in index.history.offsets_committed:
        ends.setdefault(key, []).append((answered_at, offset))
    for answered in ends.values():
        answered.sort()
    for key, offset, asked_at, version in index.history.offset_reads:
        before = ends.get(key, [])
        until = bisect_left(before, (asked_at, -1))
        least = max((committed for _, committed in before[:until]), default=-1)
        if offset < least:
            where = f"{key.group} of {key.partition}"
            yield f"{where}: {offset} by OffsetFetch {version} at {asked_at}, {least} was committed"
