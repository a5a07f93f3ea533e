"""Rechecks open transactions that coordinators contradict: asks their leaders again, then all brokers who leads.

First the partition leaders: the transaction may have ended while the coordinators answered. Then every broker, in one
round, for the leaders of those partitions and of the ``__transaction_state`` partitions behind the answers
(``leadership``). A transaction that is open as before, at the same leader, with every claim confirmed, is beyond doubt.
Anything else is a doubt with a reason, which never makes a transaction look worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.classification import CHANGING, needs_recheck
from oncelog.admin.transactions.coordinator_answers import CoordinatorAnswers, CoordinatorFinding
from oncelog.admin.transactions.leadership import Claim, doubt_about_coordinators, doubts_about, supporting_claims
from oncelog.admin.transactions.producers import ProducerRow, describe_producers
from oncelog.base.ids import TopicPartition
from oncelog.client.programs import Cluster, Program

Claims = Mapping[TopicPartition, Claim]
_Open = tuple[TopicPartition, int, int | None]


class RecheckResult(NamedTuple):
    """Transactions that are still open, and the doubts; ``unanswered`` lists the leaders that did not answer."""

    again: Mapping[_Open, ProducerRow]
    failed: frozenset[TopicPartition]
    claims: Claims
    coordinators: Claims
    doubts: Mapping[TopicPartition, str]
    unanswered: list[Unanswered]

    def has_ended(self, row: ProducerRow) -> bool:
        return _key(row) not in self.again and row.topic_partition not in self.failed

    def doubt_about(self, row: ProducerRow, coordinator_finding: CoordinatorFinding) -> str | None:
        """Why the contradiction is not certain; None if it is."""
        same, claim = self.again.get(_key(row)), self.claims.get(row.topic_partition)
        leader = None if claim is None else claim.leader
        if same is None or same.producer_epoch != row.producer_epoch or not row.leader == same.leader == leader:
            return CHANGING
        doubt = self.doubts.get(row.topic_partition)
        return doubt or doubt_about_coordinators(coordinator_finding.answered_by, self.coordinators, self.doubts)


def recheck_transactions(
    cluster: Cluster,
    rows: Sequence[ProducerRow],
    answers: CoordinatorAnswers,
    claims: Claims,
    unanswered: list[Unanswered],
) -> Program[RecheckResult]:
    """Steps 5 and 6 of a scan, for those of ``rows`` that the coordinators' answers (one for each) contradict.

    ``claims`` on the rows' partitions are from before the coordinators were queried. Brokers that did not report who
    leads are added to ``unanswered``.
    """
    doubted = [
        (row, coordinator_finding)
        for row, coordinator_finding in zip(rows, answers.findings, strict=True)
        if needs_recheck(coordinator_finding.finding)
    ]
    second = yield from describe_producers(cluster, {row.topic_partition: None for row, _ in doubted}, open_only=True)
    again = {_key(row): row for row in second.rows}
    to_confirm: dict[TopicPartition, Claim] = {}
    for row, coordinator_finding in doubted:
        if _key(row) in again:
            to_confirm |= supporting_claims(coordinator_finding.answered_by, answers.claims)
    to_confirm |= {
        row.topic_partition: claims[row.topic_partition] for row in second.rows if row.topic_partition in claims
    }
    doubts = yield from doubts_about(cluster, to_confirm, unanswered)
    return RecheckResult(again, second.failed, claims, answers.claims, doubts, second.unanswered)


def _key(row: ProducerRow) -> _Open:
    return row.topic_partition, row.producer_id, row.start_offset
