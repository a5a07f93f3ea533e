"""Runs as processes: progress, what they say, their end, and that nothing of them is left."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from oncelog.console.admission.gate import Sender
from oncelog.console.audits import report_store
from oncelog.console.audits.report import BadReport
from oncelog.console.audits.report_store import AuditReports, NoSuchAudit
from oncelog.console.audits.runs import AuditRun, Ended, command_of, process_of, typed
from oncelog.console.query import BadQuery
from tests.unit.console.audits.test_report import document
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
ME = Sender("me", "127.0.0.1:7")
TELLS = 'import sys; sys.stderr.write(\'{"step": "reading", "done": 2, "total": 5}\\noh\\n\'); print(\'{}\')'
STAYS = (
    "import subprocess, sys; one = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE);"
    'print(one.pid, flush=True); sys.stderr.write(\'{"step": "s", "done": 0, "total": 0}\\n\'); one.wait()'
)


def running(tmp_path: Path, code: str) -> AuditRun:
    return AuditRun("run-1", ["/data"], [sys.executable, "-c", code], tmp_path / "report", "me")


def test_its_progress_and_what_it_says_are_kept(tmp_path: Path) -> None:
    run = running(tmp_path, TELLS)
    assert run.wait(60)
    assert (run.state, run.step, run.done, run.total, run.messages) == ("done", "reading", 2, 5, ["oh"])
    failed = running(tmp_path, "raise SystemExit('no such directory')")
    assert failed.wait(60)
    assert (failed.state, failed.messages) == ("failed", ["no such directory"])


def test_one_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    run = running(tmp_path, STAYS)
    wait_until(lambda: run.step == "s", "its first word")
    child = int((tmp_path / "report").read_text())
    run.cancel()
    run.cancel()
    assert run.wait(60)
    assert run.state == "cancelled"
    wait_until(lambda: not _lives(child), "the end of its child")


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
    except OSError:
        os.kill(process, 0)
        return True


def test_the_command_is_what_a_person_would_type() -> None:
    assert command_of(["/a b"], copied_within_s=0, check_crc=False) == [
        *("oncelog", "audit", "--copied-within", "0", "--no-crc", "--json", "--", "/a b")
    ]
    process = process_of(["oncelog", "audit", "--json", "--", "-a b"])
    assert process[1:] == ["-P", "-m", "oncelog", "audit", "--progress", "--json", "--", "-a b"]
    assert typed(process) == "oncelog audit --json -- '-a b'"


def test_one_audit_at_a_time_over_directories_that_were_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_store, "lacking", list)
    made: list[AuditRun] = []

    def start(key: str, names: object, command: object, report: Path, user: str, ended: Ended) -> AuditRun:
        del names, command
        made.append(AuditRun(key, ["/data"], [sys.executable, "-c", STAYS], report, user, ended))
        return made[-1]

    lines: list[Mapping[str, Any]] = []
    kept = AuditReports([], [Path("/data")], start, lines.append)
    try:
        for wrong in (["/"], ["/data", "/data/.."], []):
            with pytest.raises(BadQuery):
                kept.run(wrong, ME, copied_within_s=None, check_crc=True)
        run = kept.run(["/data"], ME, copied_within_s=None, check_crc=True)
        with pytest.raises(BadQuery, match="already running"):
            kept.run(["/data"], ME, copied_within_s=None, check_crc=True)
        assert kept.run_of("run-1") is run
        with pytest.raises(NoSuchAudit):
            kept.run_of("run-2")
    finally:
        kept.close()
    assert made[0].state == "cancelled"
    assert [(line["action"], line["outcome"], line["by"], line["address"], line["directories"]) for line in lines] == [
        ("run-audit", "starting", "me", "127.0.0.1:7", ["/data"]),
        ("run-audit", "cancelled", "me", "127.0.0.1:7", ["/data"]),
    ]


def test_what_it_said_last_is_in_the_audit_of_one_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_store, "lacking", list)
    monkeypatch.setattr(
        report_store, "process_of", lambda command: [sys.executable, "-c", "raise SystemExit('no disk')"]
    )
    lines: list[Mapping[str, Any]] = []
    kept = AuditReports([], [tmp_path], audit=lines.append)
    assert kept.run([str(tmp_path)], ME, copied_within_s=None, check_crc=True).wait(60)
    assert [(line["outcome"], line.get("error")) for line in lines] == [("starting", None), ("failed", "no disk")]
    monkeypatch.setattr(report_store, "process_of", lambda command: [str(tmp_path / "nothing")])
    with pytest.raises(BadQuery, match="could not be started"):
        kept.run([str(tmp_path)], ME, copied_within_s=None, check_crc=True)
    assert [line["outcome"] for line in lines[2:]] == ["starting", "failed"]
    kept.close()


def test_without_spark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.console.audits.runs.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(BadQuery, match=r"oncelog\[spark\].*Java"):
        AuditReports([], [Path("/data")]).run(["/data"], ME, copied_within_s=None, check_crc=True)


def test_reports_are_found_by_their_keys_alone(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "a.json").write_bytes(document())
    (tmp_path / "secret.json").write_bytes(document())
    kept = AuditReports([tmp_path / "reports"], [])
    (one,) = kept.reports()
    assert (one.source, kept.open(one.key).finding_count) == ("file", 1)
    assert kept.open(one.key) is kept.open(one.key)
    for wrong in (str(tmp_path / "secret.json"), f"{tmp_path}/reports/../secret.json", "", "/etc/passwd"):
        with pytest.raises(NoSuchAudit):
            kept.open(wrong)
    bad = tmp_path / "reports" / "bad.json"
    bad.write_text("{}")
    with pytest.raises(BadReport, match=f"^{bad}: it is not a report: use the output of oncelog audit --json"):
        kept.open(str(bad))
    bad.unlink()
    keys = [kept.upload(document(seconds=number).decode(), ME) for number in range(10)]
    assert len(kept.reports()) == 1 + report_store.MAX_KEPT
    assert kept.open(keys[-1]).seconds == 9
    with pytest.raises(NoSuchAudit):
        kept.open(keys[0])
    kept.close()
