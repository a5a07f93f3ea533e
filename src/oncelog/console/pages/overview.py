"""The overview page: everything that is wrong in the cluster now, worst first, each with its cause and the way out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncelog.base.transaction_verdicts import Verdict
from oncelog.console.page import PageRequest
from oncelog.console.rendering import one_page

FIRST_WAIT_S: Final = 0.25
MAX_NAMES: Final = 5  # Groups and partitions named on a line; the others are counted.
TILES: Final = (
    ("hanging", "hanging", "bad", "/transactions?verdict=hanging"),
    ("suspected", "suspected", "bad", "/transactions?verdict=suspected"),
    ("overdue", "beyond time-out", "bad", "#problems"),
    ("groups_stuck", "groups stuck", "bad", "#problems"),
    ("groups_without_members", "groups without members, behind", "warn", "#problems"),
    ("without_leader", "without leader", "bad", "#problems"),
    ("under_min_isr", "under min ISR", "bad", "#problems"),
    ("under_replicated", "under-replicated", "warn", "#problems"),
    ("two_phase", "two-phase", "", "/transactions?verdict=two_phase"),
    ("live", "live", "", "/transactions?verdict=live"),
    ("groups", "groups", "", "/groups"),
)
"""Counts: their keys, words, colours if they are not 0, and links."""


def read(page_request: PageRequest) -> Mapping[str, Any]:
    assert page_request.diagnoses is not None
    if not page_request.as_json and page_request.diagnoses.glance(FIRST_WAIT_S) == (None, None):
        # The first page is there at once; it asks again a second later.
        return {"counts": None, "renew_s": 1}
    diagnosis = page_request.diagnoses.current()
    report = diagnosis.report
    status = report.status
    problems = one_page(report.problems, page_request.query.number("page", 1, 1))
    return {
        "summary": report.summary,
        "is_stuck": report.is_stuck,
        "counts": report.counts,
        "problems": problems,
        "tiles": TILES,
        "most_names": MAX_NAMES,
        "age_ms": int(diagnosis.age_s * 1000),
        "error": diagnosis.error,
        "is_stale": diagnosis.error is not None,
        "period_ms": int(diagnosis.period_s * 1000),
        "status": {
            "healthy": status.healthy,
            "problems": status.problems,
            "cluster_id": status.cluster_id,
            "controller_id": status.controller_id,
            "topics": status.topics,
            "partitions": status.partitions,
            "brokers": status.brokers,
        },
        "transactions": {verdict.value: report.counts[verdict.value] for verdict in Verdict},
        "unanswered": report.unknown,
    }
