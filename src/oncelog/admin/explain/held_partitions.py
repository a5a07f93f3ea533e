"""Findings about partitions that transactions hold, from the chains of ``admin.transactions``."""

from __future__ import annotations

from oncelog.admin.explain.findings import Cause, Finding, Severity
from oncelog.admin.transactions.explanations import Chain
from oncelog.base.transaction_verdicts import Verdict


def held_finding(chain: Chain, reads_before: bool = False) -> Finding:
    """``reads_before`` is True for a group that still has something to read before the transaction: it is not stuck
    yet."""
    severity = Severity.RISK if reads_before else Severity.STUCK
    if chain.verdict == Verdict.LIVE.value and not chain.is_overdue:
        severity = Severity.RISK
    return Finding(
        Cause.HELD_BY_TRANSACTION if chain.lost_marker is None else Cause.LOST_MARKER,
        severity,
        chain.about,
        chain.sentences,
        evidence={"verdict": chain.verdict, "clears_at_ms": chain.clears_at_ms, "producer_id": chain.producer_id},
        advice=chain.advice,
        commands=chain.commands,
        partitions=() if chain.partition is None else (chain.partition,),
        groups=chain.groups,
    )
