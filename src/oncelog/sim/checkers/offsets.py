"""H10, H17, H18 and H21: committed offsets in transactions and outside, what they claim, and that they never
go back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from oncelog.base.ids import group_by_key
from oncelog.sim.checkers.history import GroupPartition, RecordedOutcome, Transaction
from oncelog.sim.checkers.history_index import HistoryIndex


def beside_the_data(index: HistoryIndex) -> Iterator[str]:
    """A group's offset is not that of the last visible transaction."""
    committed = index.history.committed_offsets
    if committed is None:
        return
    plain = {commit.key for commit in index.history.commits}
    expected: dict[GroupPartition, int] = {}
    possible: dict[GroupPartition, set[int]] = {}
    for transaction in index.history.transactions:
        outcome = _is_visible(index, transaction)
        for key, offset in transaction.offsets.items():
            if outcome:
                expected[key] = max(offset, expected.get(key, 0))
            elif outcome is None:
                possible.setdefault(key, set()).add(offset)
    keys = expected.keys() | possible.keys() | {key for key, offset in committed.items() if offset}
    for key in sorted(keys - plain):
        if key.partition.topic in index.deleted:
            continue
        actual, implied = committed.get(key, 0), expected.get(key, 0)
        if actual != implied and not (actual > implied and actual in possible.get(key, ())):
            yield f"{key.group} of {key.partition}: {actual} committed, the data says {implied}"


def _is_visible(index: HistoryIndex, transaction: Transaction) -> bool | None:
    # True if the transaction was committed; None if its records do not tell.
    if transaction.outcome is not RecordedOutcome.UNKNOWN:
        return transaction.outcome is RecordedOutcome.COMMITTED
    if any(write[1] in index.visible for write in transaction.writes):
        return True
    return None if all(index.excused(write) for write in transaction.writes) else False


def lost_commits(index: HistoryIndex) -> Iterator[str]:
    """A group's offset is neither the last acknowledged one nor one that may have been committed since."""
    committed = index.history.committed_offsets
    if committed is None:
        return
    by_key = group_by_key((commit.key, commit) for commit in index.history.commits)
    transactional: dict[GroupPartition, set[int]] = {}
    for transaction in index.history.transactions:
        if transaction.outcome is not RecordedOutcome.ABORTED:
            for key, offset in transaction.offsets.items():
                transactional.setdefault(key, set()).add(offset)
    for key in sorted(by_key):
        if key.partition.topic in index.deleted:
            continue
        actual = committed.get(key)
        last = max((commit.requested_at for commit in by_key[key] if commit.answered_at is not None), default=None)
        # A request without a response may arrive at any later time, over an old connection.
        possible = {
            commit.offset
            for commit in by_key[key]
            if commit.answered_at is None or last is None or commit.answered_at >= last
        } | transactional.get(key, set())
        if actual not in possible and not (actual is None and last is None):
            yield f"{key.group} of {key.partition}: {actual} committed, acknowledged was one of {sorted(possible)}"


def unread_before_commit(index: HistoryIndex) -> Iterator[str]:
    """A group has committed an offset past a record that its members never received."""
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
        received = polled.get(key, set())
        unread = [
            r.offset for r in index.history.drained.get(key.partition, ()) if r[0] < offset and r[0] not in received
        ]
        if unread:
            yield f"{key.group} committed {key.partition}@{offset}, {unread[0]} and {len(unread) - 1} more are unread"


def went_back(index: HistoryIndex) -> Iterator[str]:
    """OffsetFetch returned less than an offset whose transaction was committed before the request."""
    if not index.history.offset_reads:
        return
    ends = group_by_key((key, (answered_at, offset)) for key, offset, answered_at in index.history.offsets_committed)
    for answered in ends.values():
        answered.sort()
    for key, offset, requested_at, version in index.history.offset_reads:
        earlier = ends.get(key, [])
        until = bisect_left(earlier, (requested_at, -1))
        least = max((committed for _, committed in earlier[:until]), default=-1)
        if offset < least:
            location = f"{key.group} of {key.partition}"
            yield f"{location}: {offset} by OffsetFetch {version} at {requested_at}, {least} was committed"
