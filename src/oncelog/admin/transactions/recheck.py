"""Asks once more about open transactions that coordinators contradict: their leaders, and then all brokers who leads.

What is asked, and in this order: the leaders of the partitions, whether it is still open (it may have ended while the
coordinators spoke); every broker, in one round of questions, who leads those partitions and those of
``__transaction_state`` that the coordinators' words rest on (``leadership``).

The rule: what is still open as before, at the same leader, with every claim confirmed, is beyond doubt; all else is a
doubt with a reason, which never lets a transaction look worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.classification import CHANGING, needs_second_look
from oncelog.admin.transactions.coordinator_answers import CoordinatorAnswers, Heard
from oncelog.admin.transactions.leadership import Claim, claims_behind, doubt_about_coordinators, doubts_about
from oncelog.admin.transactions.producers import ProducerRow, describe_producers
from oncelog.base.ids import TopicPartition
from oncelog.client.programs import Cluster, Program

Claims = Mapping[TopicPartition, Claim]
_Open = tuple[TopicPartition, int, int | None]


class SecondLook(NamedTuple):
    """Open transactions and doubts after the second look; ``unanswered`` are the leaders' answers that are missing."""

    again: Mapping[_Open, ProducerRow]
    failed: frozenset[TopicPartition]
    claims: Claims
    coordinators: Claims
    doubts: Mapping[TopicPartition, str]
    unanswered: list[Unanswered]

    def has_ended(self, row: ProducerRow) -> bool:
        """True if its leader has answered, and has the transaction open no more."""
        return _key(row) not in self.again and row.where not in self.failed

    def doubt_about(self, row: ProducerRow, heard: Heard) -> str | None:
        """The reason why the contradiction is not certain; None if it is."""
        same, claim = self.again.get(_key(row)), self.claims.get(row.where)
        leader = None if claim is None else claim.leader
        if same is None or same.producer_epoch != row.producer_epoch or not row.leader == same.leader == leader:
            return CHANGING
        doubt = self.doubts.get(row.where)
        return doubt or doubt_about_coordinators(heard.spoke, self.coordinators, self.doubts)


def look_again(
    cluster: Cluster,
    rows: Sequence[ProducerRow],
    answers: CoordinatorAnswers,
    claims: Claims,
    unanswered: list[Unanswered],
) -> Program[SecondLook]:
    """Steps 5 and 6 of a scan for those of ``rows`` that the coordinators' answers, one for each, contradict.

    ``claims`` are those on the rows' partitions from before the coordinators were asked. Brokers that have not told who
    leads are added to ``unanswered``. Asks nobody where there is no contradiction.
    """
    doubted = [(row, heard) for row, heard in zip(rows, answers.heard, strict=True) if needs_second_look(heard.finding)]
    second = yield from describe_producers(cluster, {row.where: None for row, _ in doubted}, open_only=True)
    again = {_key(row): row for row in second.rows}
    to_confirm: dict[TopicPartition, Claim] = {}
    for row, heard in doubted:
        if _key(row) in again:
            to_confirm |= claims_behind(heard.spoke, answers.claims)
    to_confirm |= {row.where: claims[row.where] for row in second.rows if row.where in claims}
    doubts = yield from doubts_about(cluster, to_confirm, unanswered)
    return SecondLook(again, second.failed, claims, answers.claims, doubts, second.unanswered)


def _key(row: ProducerRow) -> _Open:
    return row.where, row.producer_id, row.start_offset
