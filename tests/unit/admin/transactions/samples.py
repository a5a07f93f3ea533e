"""Sample rows of leaders and coordinators, and transactions of every verdict."""

from __future__ import annotations

from dataclasses import replace

from oncelog.admin.transactions.cluster_scan import OpenTransaction
from oncelog.admin.transactions.partition_offsets import Start
from oncelog.admin.transactions.producers import ProducerRow
from oncelog.admin.transactions.transactional_ids import TransactionRow
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.transaction_verdicts import NEVER_TIMES_OUT, ReasonCode, Verdict

HERE, THERE = TopicPartition(TopicName("t"), 0), TopicPartition(TopicName("t"), 1)
LEADER = ProducerRow("t", 0, 1, 7, 3, 0, 1_000, 0, 100)
ONGOING = TransactionRow("x", 2, "Ongoing", 7, 3, 60_000, 900, frozenset({HERE}))


def said(**changes: object) -> TransactionRow:
    return replace(ONGOING, **changes)  # type: ignore[arg-type]  # fields by name


NOW = 1_800_000_000_000
START = Start(NOW - 7_200_000, 100, 1_203)
HANGING = OpenTransaction(
    replace(LEADER, last_timestamp_ms=NOW - 60_000),
    100,
    START,
    Verdict.HANGING,
    ReasonCode.ENDED,
    "The coordinator has committed 'x' and written all its markers; these records came after the marker, or it was "
    "lost",
    7_200_000,
    "x",
    2,
    said(state="CompleteCommit", partitions=frozenset()),
    60_000,
)
LIVE = replace(
    HANGING,
    verdict=Verdict.LIVE,
    code=ReasonCode.ONGOING,
    row=replace(ONGOING, start_ms=NOW - 10_000),
    reason="It is",
)
TWO_PHASE = replace(LIVE, verdict=Verdict.TWO_PHASE, code=ReasonCode.TWO_PHASE, row=said(timeout_ms=NEVER_TIMES_OUT))
COMPLETING = replace(LIVE, code=ReasonCode.COMPLETING)
YOUNG = replace(HANGING, verdict=Verdict.SUSPECTED, age_ms=20_000, is_confirmed=True)
"""A hang younger than its time-out."""
SUSPECTED = replace(HANGING, verdict=Verdict.SUSPECTED, code=ReasonCode.UNANSWERED, row=None, transactional_id=None)
