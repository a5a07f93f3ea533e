"""Audits: reports to open, one report with its findings, and audits that are run over the directories allowed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from oncelog.base.notation.json_values import to_json
from oncelog.base.notation.shell_words import word
from oncelog.console.admission.gate import Sender
from oncelog.console.audits.report import LARGEST, AuditReport, OverTime
from oncelog.console.audits.runs import AuditRun, command_of, lacking, typed
from oncelog.console.page import Asked
from oncelog.console.query import Query
from oncelog.console.rendering import address, one_page
from oncelog.plotting.columns import ColumnPlot, column_plot

FATES: Final = ("committed", "aborted", "open", "ending", "unknown", "torn", "hanging")
GRAVE: Final = ("torn", "hanging")
_LONGEST_SKEW_S: Final = 10 * 365 * 86_400


def read_all(asked: Asked) -> Mapping[str, Any]:
    """Reports and runs, and the directories that may be audited."""
    runs = [run_row(run) for run in asked.audits.runs()]
    return {
        "reports": one_page(asked.audits.reports(), asked.query.number("page", 1, 1)),
        "runs": runs,
        "directories": list(asked.audits.directories),
        "lacking": lacking(),
        "largest": LARGEST,
        "live": any(run["state"] == "running" for run in runs),
    }


def run_row(run: AuditRun) -> dict[str, Any]:
    """A run as a row. ``share``: how much of its step is done, from 0 to 1; None where that is not known."""
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
        "said": run.said,
    }


def read_run(asked: Asked) -> Mapping[str, Any]:
    """A run: how far it is, or what came of it."""
    run = asked.audits.run_of(asked.query.needed("key"))
    return {"run": run_row(run), "command": typed(run.command), "live": not run.is_over}


def read_report(asked: Asked) -> Mapping[str, Any]:
    """A report: what was read, the fates over time, and the findings of a kind or about a name."""
    query = asked.query
    key, kind, name, fate = query.needed("key"), query.text("kind"), query.text("name"), query.text("fate")
    report = asked.audits.open(key)
    findings = [finding for finding in report.findings if kind in ("", finding["kind"]) and _names(finding, name)]
    unusual = [one for one in report.not_ended if fate in ("", one["fate"]) and _names(one, name)]
    return {
        "key": key,
        "filter": {"kind": kind, "name": name, "fate": fate},
        "report": {
            field: getattr(report, field)
            for field in ("directories", "as_of", "checksums_checked", "caveats", "seconds", "read", "fates", "kinds")
        },
        "found": report.found,
        "listed": len(report.findings),
        "meanings": report.meanings,
        "plot": plot_of(report.over_time) if not asked.as_json else to_json(report.over_time),
        "where": most_affected(report),
        "findings": one_page(findings, query.number("page", 1, 1)),
        "unusual": one_page(unusual, query.number("unusual_page", 1, 1)),
    }


def _names(row: Mapping[str, Any], name: str) -> bool:
    """True if a row is about a name: a topic, one of its partitions, a transactional id or a producer id."""
    partition = f"{row['topic']}-{row['partition']}"
    return not name or name in (row["topic"], partition, row["transactional_id"], str(row["producer_id"]))


def most_affected(report: AuditReport) -> list[tuple[str, int]]:
    """Partitions with the most of the findings that are listed."""
    numbers = Counter(f"{finding['topic']}-{finding['partition']}" for finding in report.findings if finding["topic"])
    return numbers.most_common(10)


def plot_of(over_time: OverTime | None) -> ColumnPlot | None:
    """Transactions over time; None for a report that does not tell, of an older version."""
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


def start(asked: Asked, sender: Sender) -> str:
    """Run an audit of the directories chosen, and go to its page."""
    query = asked.query
    run = asked.audits.run(
        tuple(dict.fromkeys(query.all("directory"))),
        sender,
        copied_within_s=query.optional_number("copied_within", 0, _LONGEST_SKEW_S),
        check_crc=query.flag("checksums"),
    )
    return address("/audit/run", key=run.key)


def cancel(asked: Asked, sender: Sender) -> str:
    key = asked.query.needed("key")
    asked.audits.cancel(key, sender)
    return address("/audit/run", key=key)


def upload(asked: Asked, sender: Sender) -> str:
    """Keep a report that a browser has, and go to its page."""
    return address("/audit/report", key=asked.audits.upload(Query(asked.query.values).long("report", LARGEST), sender))


def command_for(directories: list[str]) -> str:
    """The command that writes a report of these directories, to copy."""
    return " ".join(map(word, command_of(directories, copied_within_s=None, check_crc=True))) + " > report.json"
