"""Audit pages: the list of reports and runs, one report with its findings, and one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from oncelog.base.notation.json_values import to_json
from oncelog.base.notation.shell_words import word
from oncelog.console.admission.gate import Sender
from oncelog.console.audits.report import MAX_REPORT_BYTES, AuditReport, OverTime
from oncelog.console.audits.runs import AuditRun, command_of, lacking, typed
from oncelog.console.page import PageRequest
from oncelog.console.query import Query
from oncelog.console.rendering import address, one_page
from oncelog.plotting.columns import ColumnPlot, column_plot

FATES: Final = ("committed", "aborted", "open", "ending", "unknown", "torn", "hanging")
GRAVE: Final = ("torn", "hanging")
_MAX_SKEW_S: Final = 10 * 365 * 86_400


def read_all(page_request: PageRequest) -> Mapping[str, Any]:
    runs = [run_row(run) for run in page_request.audits.runs()]
    return {
        "reports": one_page(page_request.audits.reports(), page_request.query.number("page", 1, 1)),
        "runs": runs,
        "directories": list(page_request.audits.directories),
        "lacking": lacking(),
        "largest": MAX_REPORT_BYTES,
        "live": any(run["state"] == "running" for run in runs),
    }


def run_row(run: AuditRun) -> dict[str, Any]:
    """A run as a row. ``share`` is the completed part of its step, from 0 to 1; None if unknown."""
    return {
        "key": run.key,
        "state": run.state,
        "directories": list(run.directories),
        "user": run.user,
        "started_ms": run.started_ms,
        "ended_ms": run.ended_ms,
        "step": run.step,
        "done": run.done,
        "total": run.total,
        "share": min(1.0, run.done / run.total) if run.total > 0 else None,
        "said": run.messages,
    }


def read_run(page_request: PageRequest) -> Mapping[str, Any]:
    run = page_request.audits.run_of(page_request.query.needed("key"))
    return {"run": run_row(run), "command": typed(run.command), "live": not run.is_over}


def read_report(page_request: PageRequest) -> Mapping[str, Any]:
    query = page_request.query
    key, kind, name, fate = query.needed("key"), query.text("kind"), query.text("name"), query.text("fate")
    report = page_request.audits.open(key)
    findings = [finding for finding in report.findings if kind in ("", finding["kind"]) and _names(finding, name)]
    unusual = [entry for entry in report.not_ended if fate in ("", entry["fate"]) and _names(entry, name)]
    return {
        "key": key,
        "filter": {"kind": kind, "name": name, "fate": fate},
        "report": {
            field: getattr(report, field)
            for field in ("directories", "as_of", "checksums_checked", "caveats", "seconds", "read", "fates", "kinds")
        },
        "found": report.finding_count,
        "listed": len(report.findings),
        "meanings": report.meanings,
        "plot": plot_of(report.over_time) if not page_request.as_json else to_json(report.over_time),
        "where": most_affected(report),
        "findings": one_page(findings, query.number("page", 1, 1)),
        "unusual": one_page(unusual, query.number("unusual_page", 1, 1)),
    }


def _names(row: Mapping[str, Any], name: str) -> bool:
    partition = f"{row['topic']}-{row['partition']}"
    return not name or name in (row["topic"], partition, row["transactional_id"], str(row["producer_id"]))


def most_affected(report: AuditReport) -> list[tuple[str, int]]:
    numbers = Counter(f"{finding['topic']}-{finding['partition']}" for finding in report.findings if finding["topic"])
    return numbers.most_common(10)


def plot_of(over_time: OverTime | None) -> ColumnPlot | None:
    """A plot of transactions over time; None for a report of an older version, which lacks them."""
    if over_time is None or not over_time.columns:
        return None
    begin_ms = _moment_ms(over_time.begin)
    if begin_ms is None:
        return None
    columns = [
        ((at - begin_ms) // over_time.stretch_ms, numbers)
        for time, numbers in over_time.columns
        if (at := _moment_ms(time)) is not None
    ]
    stretches = max(1, min(over_time.stretches, 1000))
    return column_plot("Transactions over time, UTC", begin_ms, over_time.stretch_ms, stretches, columns, FATES, GRAVE)


def _moment_ms(text: str) -> int | None:
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None


def start(page_request: PageRequest, sender: Sender) -> str:
    query = page_request.query
    run = page_request.audits.run(
        tuple(dict.fromkeys(query.all("directory"))),
        sender,
        copied_within_s=query.optional_number("copied_within", 0, _MAX_SKEW_S),
        check_crc=query.flag("checksums"),
    )
    return address("/audit/run", key=run.key)


def cancel(page_request: PageRequest, sender: Sender) -> str:
    key = page_request.query.needed("key")
    page_request.audits.cancel(key, sender)
    return address("/audit/run", key=key)


def upload(page_request: PageRequest, sender: Sender) -> str:
    return address(
        "/audit/report",
        key=page_request.audits.upload(Query(page_request.query.values).long("report", MAX_REPORT_BYTES), sender),
    )


def command_for(directories: list[str]) -> str:
    return " ".join(map(word, command_of(directories, copied_within_s=None, check_crc=True))) + " > report.json"
