"""The start page of a console with several clusters: the state of each and the worst that is wrong in it.

The rule: a cluster that does not answer delays the page by ``WAIT_S`` at most, and only until its first failure is
known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from oncelog.console.endpoints import rendered
from oncelog.console.services import Services, Shared

if TYPE_CHECKING:
    from oncelog.admin.explain.cluster_report import Problem

PATH: Final = "/clusters"
WAIT_S: Final = 1.0
MAX_PROBLEMS: Final = 3


def start_page(clusters: Sequence[Services], shared: Shared) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        rows = await run_in_threadpool(read, clusters)
        return rendered(shared.templates[""], request, "clusters.html", "Clusters", True, rows)

    return endpoint


def read(clusters: Sequence[Services]) -> Mapping[str, Any]:
    """A row for each cluster, in the order of the command line."""
    for services in clusters:
        services.diagnoses.glance(0.0)
    deadline_s = time.monotonic() + WAIT_S
    rows = [_row(services, max(0.0, deadline_s - time.monotonic())) for services in clusters]
    return {
        "rows": rows,
        "is_stuck": any(row["is_stuck"] for row in rows),
        "unanswered": sum(row["error"] is not None for row in rows),
    }


def _row(services: Services, wait_s: float) -> dict[str, Any]:
    diagnosis, error = services.diagnoses.glance(wait_s)
    row: dict[str, Any] = {
        "name": services.settings.cluster,
        "address": services.settings.prefix + "/overview",
        "bootstrap": services.settings.bootstrap,
        "error": error,
        "cluster_id": None,
        "age_ms": None,
        "is_stuck": False,
        "summary": None,
        "counts": {},
        "problems": [],
    }
    if diagnosis is None:
        return row
    report = diagnosis.report
    return row | {
        "cluster_id": report.status.cluster_id,
        "age_ms": int(diagnosis.age_s * 1000),
        "is_stuck": report.is_stuck,
        "summary": report.summary,
        "counts": report.counts,
        "problems": [
            _problem(problem) for problem in report.problems[:MAX_PROBLEMS] if problem.severity.value != "note"
        ],
    }


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "kind": problem.kind,
        "name": problem.name,
        "cause": (problem.verdict or problem.cause.value).replace("_", "-"),
        "is_urgent": problem.is_urgent,
        "since_ms": problem.since_ms,
        "text": problem.text,
    }
