"""Facts about transactional ids for a report on a whole cluster: unfinished, timed out, not used again."""

# The log of coordinators and all idle ids are much to read for a page that renews itself every few seconds: a caller
# hands in the facts of its last report, and the young ones are kept.

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.cluster_scan import OpenTransaction
from oncelog.admin.transactions.history.lost_markers import LostMarker, find_lost_marker
from oncelog.admin.transactions.history.recent_ends import RecentEnds, read_recent_ends
from oncelog.admin.transactions.history.unused_ids import IDLE_MS, IdCensus, unused_ids
from oncelog.admin.transactions.transactional_ids import (
    ListFilter,
    TransactionRow,
    describe_transactions,
    list_transactions,
)
from oncelog.base.ids import TopicPartition
from oncelog.base.transaction_verdicts import DECIDED_STATES, ONGOING_STATE
from oncelog.base.units import MINUTE_MS, SECOND_MS
from oncelog.client.programs import Cluster, Program, Sleep

# The markers of a decided transaction may take this time.
ENDING_MS: Final = 5 * SECOND_MS
ENDS_FOR_MS: Final = 30 * SECOND_MS
CENSUS_FOR_MS: Final = 10 * MINUTE_MS
MOST_DESCRIBED: Final = 1000
MOST_SUSPECTS: Final = 10
_OPEN_STATES: Final = (ONGOING_STATE, *sorted(DECIDED_STATES))


@dataclass(frozen=True, slots=True)
class IdFacts:
    open_rows: tuple[TransactionRow, ...] = ()
    """Transactions older than a minute, by their coordinators."""
    ends: RecentEnds = field(default_factory=RecentEnds)
    clients: Mapping[str, TransactionRow] = field(default_factory=dict)
    """The ids of ``ends.repeated``."""
    ends_at_ms: int = 0
    census: IdCensus = field(default_factory=IdCensus)
    lost_markers: Mapping[tuple[TopicPartition, int], LostMarker] = field(default_factory=dict)
    unanswered: tuple[Unanswered, ...] = ()


def id_facts(
    cluster: Cluster,
    transactions: Sequence[OpenTransaction],
    now_ms: int,
    earlier: IdFacts | None,
    window_ms: int,
    idle_ids_ms: int = IDLE_MS,
) -> Program[IdFacts]:
    listing = yield from list_transactions(cluster, ListFilter(_OPEN_STATES, longer_than_ms=MINUTE_MS))
    coordinators = {row.transactional_id: row.coordinator for row in listing.rows[:MOST_DESCRIBED]}
    described = yield from describe_transactions(cluster, coordinators, coordinators=coordinators)
    shown = {transaction.transactional_id for transaction in transactions}
    open_rows = yield from _without_ending(cluster, described.rows, shown)
    if earlier is not None and 0 <= now_ms - earlier.ends_at_ms < ENDS_FOR_MS:
        ends, clients, ends_at_ms = earlier.ends, earlier.clients, earlier.ends_at_ms
    else:
        ends, ends_at_ms = (yield from read_recent_ends(cluster, window_ms=window_ms)), now_ms
        names = [row.transactional_id for row in ends.repeated[:MOST_DESCRIBED]]
        clients = (yield from describe_transactions(cluster, names)).rows if names else {}
    if earlier is not None and 0 <= now_ms - earlier.census.at_ms < CENSUS_FOR_MS:
        census = earlier.census
    else:
        census = yield from unused_ids(cluster, idle_ms=idle_ids_ms)
    lost = yield from _lost_markers(cluster, transactions, earlier)
    unanswered = (*listing.unanswered, *census.unanswered)
    return IdFacts(open_rows, ends, clients, ends_at_ms, census, lost, unanswered)


def _without_ending(
    cluster: Cluster, rows: Mapping[str, TransactionRow], shown: Collection[str | None]
) -> Program[tuple[TransactionRow, ...]]:
    # A long transaction that is just being ended is decided for a moment, too.
    decided = {name for name, row in rows.items() if row.state in DECIDED_STATES and name not in shown}
    if not decided:
        return tuple(rows.values())
    yield Sleep(ENDING_MS)
    later = (yield from describe_transactions(cluster, decided)).rows
    return still_open(rows, decided, later)


def still_open(
    rows: Mapping[str, TransactionRow], decided: Collection[str], later: Mapping[str, TransactionRow]
) -> tuple[TransactionRow, ...]:
    # The rows, of ``decided`` only those that ``later`` has in the same transaction and state.
    def identity(row: TransactionRow | None) -> tuple[object, ...] | None:
        return None if row is None else (row.state, row.start_ms, row.producer_id)

    return tuple(row for name, row in rows.items() if name not in decided or identity(row) == identity(later.get(name)))


def _lost_markers(
    cluster: Cluster, transactions: Sequence[OpenTransaction], earlier: IdFacts | None
) -> Program[dict[tuple[TopicPartition, int], LostMarker]]:
    lost: dict[tuple[TopicPartition, int], LostMarker] = {}
    suspects = [transaction for transaction in transactions if transaction.holds and transaction.is_confirmed]
    for transaction in suspects[:MOST_SUSPECTS]:
        key = transaction.topic_partition, transaction.start_offset
        marker = None if earlier is None else earlier.lost_markers.get(key)
        if marker is None:
            marker = yield from find_lost_marker(cluster, transaction)
        if marker is not None:
            lost[key] = marker
    return lost
