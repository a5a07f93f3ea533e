"""Queries all coordinators about open transactions: for the ids behind producer ids, then for the state of those ids.

Lists silently omit ids that the caller may not describe, so if a producer id is unknown, a probe finds out whether such
ids would be visible at all. Findings come with the brokers that answered, and with the leaders that metadata claimed
before coordinators were queried (``leadership``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.classification import Evidence, Finding, finding_of
from oncelog.admin.transactions.leadership import Claim
from oncelog.admin.transactions.producers import ProducerRow
from oncelog.admin.transactions.transactional_ids import (
    Described,
    ListFilter,
    Listing,
    describe_transactions,
    list_transactions,
)
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition, group_by_key
from oncelog.client.errors import ClientError
from oncelog.client.programs import Cluster, Program
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest

PRODUCER_IDS_PER_REQUEST: Final = 20_000
PROBE_ID: Final = "oncelog-may-i-see-this"


class CoordinatorFinding(NamedTuple):
    """The finding about one open transaction. ``answered_by`` maps its transactional ids to the brokers that answered;
    it is empty if no coordinator knows the producer id."""

    finding: Finding
    answered_by: Mapping[str, int]


class CoordinatorAnswers(NamedTuple):
    """A finding for each open transaction, in order, and the claims on all partitions of the transaction log."""

    findings: list[CoordinatorFinding]
    claims: Mapping[TopicPartition, Claim]


def query_coordinators(
    cluster: Cluster, rows: Sequence[ProducerRow], unanswered: list[Unanswered]
) -> Program[CoordinatorAnswers]:
    """The coordinators' findings about the transactions that ``rows`` have open; gaps are added to ``unanswered``."""
    if not rows:
        return CoordinatorAnswers([], {})
    listing = yield from _list_all(cluster, sorted({row.producer_id for row in rows}))
    by_producer = group_by_key((listed_row.producer_id, listed_row.transactional_id) for listed_row in listing.rows)
    described = yield from _describe_all(
        cluster, listing, {row.transactional_id for row in rows if row.transactional_id}
    )
    missing = listing.unanswered
    unanswered += [*missing, *dict.fromkeys(described.unanswered.values())]
    if any(row.producer_id not in by_producer and not row.transactional_id for row in rows):
        missing = [*missing, *(yield from _unseen_ids(cluster))]
    reasons = tuple(map(str, missing))
    findings = [_finding(row, by_producer.get(row.producer_id, []), described, reasons) for row in rows]
    return CoordinatorAnswers(findings, listing.claims)


def _list_all(cluster: Cluster, producer_ids: Sequence[int]) -> Program[Listing]:
    """The ids behind all these producer ids, with the claims from before any broker answered."""
    listing: Listing | None = None
    for start in range(0, len(producer_ids), PRODUCER_IDS_PER_REQUEST):
        part = yield from list_transactions(
            cluster, ListFilter(producer_ids=tuple(producer_ids[start:][:PRODUCER_IDS_PER_REQUEST]))
        )
        if listing is None:
            listing = part
        else:
            listing.rows.extend(part.rows)
            listing.unanswered.extend(part.unanswered)
    return listing or Listing([])


def _describe_all(cluster: Cluster, listing: Listing, named: set[str]) -> Program[Described]:
    """Descriptions of the ids that are listed, or that leaders named. An id is requested from the broker that listed
    it; if two did, the client's view decides."""
    listed = Counter(row.transactional_id for row in listing.rows)
    coordinators = {row.transactional_id: row.coordinator for row in listing.rows if listed[row.transactional_id] == 1}
    return (
        yield from describe_transactions(cluster, [*listed, *sorted(named - listed.keys())], coordinators=coordinators)
    )


def _finding(
    row: ProducerRow, ids: Iterable[str], described: Described, unanswered: tuple[str, ...]
) -> CoordinatorFinding:
    named = row.transactional_id or None
    ids_asked = dict.fromkeys([*ids, *([named] if named is not None else [])])
    rows = tuple(described.rows[name] for name in ids_asked if name in described.rows)
    refused = tuple(str(described.unanswered[name]) for name in ids_asked if name in described.unanswered)
    unknown = named if named is not None and named in described.unknown else None
    answered_by = {row.transactional_id: row.coordinator for row in rows}
    answered_by |= {name: described.unknown[name] for name in ids_asked if name in described.unknown}
    return CoordinatorFinding(finding_of(row, Evidence(rows, unknown, (*unanswered, *refused))), answered_by)


def _unseen_ids(cluster: Cluster) -> Program[list[Unanswered]]:
    """One entry if some ids may be hidden from us. Only a request for an id that does not exist reveals that."""
    request = DescribeTransactionsRequest(transactional_ids=[PROBE_ID])
    try:
        answer = yield from cluster.request(request)
    except ClientError as error:
        return [Unanswered(None, "whether all transactional ids may be seen", str(error))]
    if any(state.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED for state in answer.transaction_states):
        return [Unanswered(None, "transactional ids", "not allowed to see all of them (Describe on transactional ids)")]
    return []
