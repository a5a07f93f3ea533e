"""All coordinators are asked about open transactions: for the ids behind producer ids, and what those ids are doing.

The rule: nothing is concluded from a question that was not answered. Ids that one may not describe are not in a list,
without a word; so where a producer id is known to nobody it is tried out whether we may see such ids at all. And each
finding comes with the brokers whose word it is, and with who coordinated before they were asked (``leadership``).
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
from oncelog.base.ids import TopicPartition
from oncelog.client.errors import ClientError
from oncelog.client.programs import Cluster, Program
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest

PRODUCER_IDS_A_REQUEST: Final = 20_000
PROBE_ID: Final = "oncelog-may-i-see-this"


class Heard(NamedTuple):
    """The finding about one open transaction. ``spoke``: the ids that it is about, each with the broker that has
    answered for it; empty where no coordinator knows the producer id."""

    finding: Finding
    spoke: Mapping[str, int]


class CoordinatorAnswers(NamedTuple):
    """A finding for each open transaction, in their order, and the claims on all partitions of the transaction log."""

    heard: list[Heard]
    claims: Mapping[TopicPartition, Claim]


def ask_coordinators(
    cluster: Cluster, rows: Sequence[ProducerRow], unanswered: list[Unanswered]
) -> Program[CoordinatorAnswers]:
    """The coordinators' findings about the transactions that ``rows`` have open; gaps are added to ``unanswered``."""
    if not rows:
        return CoordinatorAnswers([], {})
    listing = yield from _list_all(cluster, sorted({row.producer_id for row in rows}))
    by_producer: dict[int, list[str]] = {}
    for one in listing.rows:
        by_producer.setdefault(one.producer_id, []).append(one.transactional_id)
    described = yield from _describe_all(
        cluster, listing, {row.transactional_id for row in rows if row.transactional_id}
    )
    missing = listing.unanswered
    unanswered += [*missing, *dict.fromkeys(described.unanswered.values())]
    if any(row.producer_id not in by_producer and not row.transactional_id for row in rows):
        missing = [*missing, *(yield from _unseen_ids(cluster))]
    reasons = tuple(map(str, missing))
    heard = [_heard(row, by_producer.get(row.producer_id, []), described, reasons) for row in rows]
    return CoordinatorAnswers(heard, listing.claims)


def _list_all(cluster: Cluster, producer_ids: Sequence[int]) -> Program[Listing]:
    """The ids behind all these producer ids; its claims are the first ones, from before anybody was asked."""
    found: Listing | None = None
    for start in range(0, len(producer_ids), PRODUCER_IDS_A_REQUEST):
        part = yield from list_transactions(
            cluster, ListFilter(producer_ids=tuple(producer_ids[start:][:PRODUCER_IDS_A_REQUEST]))
        )
        if found is None:
            found = part
        else:
            found.rows.extend(part.rows)
            found.unanswered.extend(part.unanswered)
    return found or Listing([])


def _describe_all(cluster: Cluster, listing: Listing, named: set[str]) -> Program[Described]:
    """Descriptions of the ids that are listed, or that leaders have named. An id is asked for where it is listed;
    where two brokers list it, one of them was replaced, and the view has to say which."""
    listed = Counter(row.transactional_id for row in listing.rows)
    coordinators = {row.transactional_id: row.coordinator for row in listing.rows if listed[row.transactional_id] == 1}
    return (
        yield from describe_transactions(cluster, [*listed, *sorted(named - listed.keys())], coordinators=coordinators)
    )


def _heard(row: ProducerRow, ids: Iterable[str], described: Described, unanswered: tuple[str, ...]) -> Heard:
    named = row.transactional_id or None
    asked = dict.fromkeys([*ids, *([named] if named is not None else [])])
    rows = tuple(described.rows[one] for one in asked if one in described.rows)
    refused = tuple(str(described.unanswered[one]) for one in asked if one in described.unanswered)
    unknown = named if named is not None and named in described.unknown else None
    spoke = {one.transactional_id: one.coordinator for one in rows}
    spoke |= {one: described.unknown[one] for one in asked if one in described.unknown}
    return Heard(finding_of(row, Evidence(rows, unknown, (*unanswered, *refused))), spoke)


def _unseen_ids(cluster: Cluster) -> Program[list[Unanswered]]:
    """One entry if there may be ids that we are not shown: nothing tells but to ask about one that does not exist."""
    question = DescribeTransactionsRequest(transactional_ids=[PROBE_ID])
    try:
        answer = yield from cluster.request(question)
    except ClientError as error:
        return [Unanswered(None, "whether all transactional ids may be seen", str(error))]
    if any(state.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED for state in answer.transaction_states):
        return [Unanswered(None, "transactional ids", "not allowed to see all of them (Describe on transactional ids)")]
    return []
