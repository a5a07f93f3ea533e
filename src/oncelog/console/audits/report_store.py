"""Store of the audits a console knows: report files, uploaded reports, and its own runs.

A key is only looked up, never turned into a path. Uploads and runs live in a temporary directory that is deleted with
the console, at most ``MAX_KEPT`` of each. An upload has a line in the audit log; a run has one at its start and one at
its end.
"""

from __future__ import annotations

import hashlib
import itertools
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from oncelog.admin.transactions.audit_trail import Audit, entry_of, no_audit
from oncelog.console.admission.audit_lines import console_audit
from oncelog.console.admission.gate import Sender
from oncelog.console.audits.report import MAX_REPORT_BYTES, AuditReport, BadReport, read_report
from oncelog.console.audits.runs import AuditRun, RunState, Start, command_of, lacking, process_of
from oncelog.console.query import BadQuery

MAX_KEPT: Final = 8
MAX_FILES: Final = 500


class NoSuchAudit(BadQuery):
    """No report or run has this key."""

    status = 404


@dataclass(frozen=True, slots=True)
class Listed:
    key: str
    source: str  # "file", "upload" or "run"
    written_ms: int
    size_bytes: int


class AuditReports:
    """Reports and runs; thread-safe."""

    def __init__(
        self, files: Sequence[Path], data: Sequence[Path], start: Start = AuditRun, audit: Audit = no_audit
    ) -> None:
        self.directories: Mapping[str, Path] = {str(path): path for path in data}
        """Directories that may be audited, by name."""
        self._files = tuple(files)
        self._start = start
        self._audit = audit
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._own: tempfile.TemporaryDirectory[str] | None = None
        self._uploads: dict[str, Path] = {}
        self._runs: dict[str, AuditRun] = {}
        self._last: tuple[tuple[str, int, int], AuditReport] | None = None

    def reports(self) -> list[Listed]:
        with self._lock:
            own = [(key, "upload", path) for key, path in self._uploads.items()]
            own += [(key, "run", run.report) for key, run in self._runs.items() if run.state == "done"]
        listed = []
        for key, source, path in [*own, *((str(path), "file", path) for path in self._report_files())]:
            try:
                status = path.stat()
            except OSError:
                continue
            listed.append(Listed(key, source, int(status.st_mtime * 1000), status.st_size))
        return sorted(listed, key=lambda report: (-report.written_ms, report.key))

    def open(self, key: str) -> AuditReport:
        """The report with this key. Raises NoSuchAudit, BadReport."""
        with self._lock:
            run, path = self._runs.get(key), self._uploads.get(key)
        if run is not None and run.state == "done":
            path = run.report
        if path is None:
            path = next((file for file in self._report_files() if str(file) == key), None)
        if path is None:
            raise NoSuchAudit(f"no report {key!r}: uploads and runs are deleted when the console stops")
        try:
            return self._read(key, path)
        except BadReport as error:
            raise BadReport(f"{key}: {error}") from None

    def _read(self, key: str, path: Path) -> AuditReport:
        """Parse a report file. The last one is cached: its pages are requested one after another."""
        try:
            status = path.stat()
            cached = self._last
            version = key, status.st_mtime_ns, status.st_size
            if cached is not None and cached[0] == version:
                return cached[1]
            if status.st_size > MAX_REPORT_BYTES:
                raise BadReport(f"it has {status.st_size} bytes; the maximum is {MAX_REPORT_BYTES}")
            with path.open("rb") as file:
                report = read_report(file.read(MAX_REPORT_BYTES + 1))
        except OSError as error:
            raise BadReport(f"it cannot be read: {error.strerror}") from None
        self._last = version, report
        return report

    def upload(self, text: str, sender: Sender) -> str:
        """Store a report and return its key. Raises BadReport, and ClientError for the audit log."""
        document = text.encode()
        read_report(document)
        digest = hashlib.sha256(document).hexdigest()
        with self._lock:
            key = f"upload-{next(self._numbers)}"
            path = self._directory() / f"{key}.json"
            path.write_bytes(document)
            self._uploads[key] = path
            while len(self._uploads) > MAX_KEPT:
                self._uploads.pop(next(iter(self._uploads))).unlink(missing_ok=True)
        self._note(sender, "upload-audit-report", "done", key=key, bytes=len(document), sha256=digest)
        return key

    def run(self, names: Sequence[str], sender: Sender, *, copied_within_s: int | None, check_crc: bool) -> AuditRun:
        """Start an audit of the named directories. Raises BadQuery if it cannot start now, and ClientError for the
        audit log."""
        unknown = [name for name in names if name not in self.directories]
        if unknown or not names:
            raise BadQuery(f"{unknown[0]!r} is not a directory of --audit-data" if unknown else "choose a directory")
        if reasons := lacking():
            raise BadQuery(f"an audit needs {' and '.join(reasons)}")
        with self._lock:
            if any(not other.is_over for other in self._runs.values()):
                raise BadQuery("an audit is already running; wait for it or cancel it")
            key = f"run-{next(self._numbers)}"
            command = command_of(names, copied_within_s=copied_within_s, check_crc=check_crc)
            report = self._directory() / f"{key}.json"
            details = {"key": key, "directories": list(names), "command": command}

            def ended(run: AuditRun, state: RunState) -> None:
                reason = {"error": run.messages[-1]} if state == "failed" and run.messages else {}
                self._note(sender, "run-audit", state, **details, **reason)

            self._note(sender, "run-audit", "starting", **details)
            try:
                run = self._start(key, names, process_of(command), report, sender.user, ended)
            except OSError as error:
                reason = f"the audit could not be started: {error.strerror}"
                self._note(sender, "run-audit", "failed", **details, error=reason)
                raise BadQuery(reason) from None
            self._runs[key] = run
            while len(self._runs) > MAX_KEPT:
                self._runs.pop(next(iter(self._runs))).report.unlink(missing_ok=True)
            return run

    def cancel(self, key: str, sender: Sender) -> None:
        """Stop a run, which writes its own audit line. Raises NoSuchAudit, and ClientError for the audit log."""
        run = self.run_of(key)
        self._note(sender, "cancel-audit", "done", key=key)
        run.cancel()

    def _note(self, sender: Sender, action: str, outcome: str, **details: object) -> None:
        console_audit(self._audit, sender.user, sender.address)(entry_of(action, outcome, **details))

    def runs(self) -> list[AuditRun]:
        with self._lock:
            return list(reversed(self._runs.values()))

    def run_of(self, key: str) -> AuditRun:
        """The run with this key. Raises NoSuchAudit."""
        with self._lock:
            run = self._runs.get(key)
        if run is None:
            raise NoSuchAudit(f"no run {key!r}: the last {MAX_KEPT} runs are kept until the console stops")
        return run

    def close(self) -> None:
        for run in self.runs():
            run.cancel()
        for run in self.runs():
            run.wait(15.0)
        with self._lock:
            if self._own is not None:
                self._own.cleanup()
                self._own = None

    def _report_files(self) -> Iterator[Path]:
        for file in self._files:
            if file.is_dir():
                yield from itertools.islice((path for path in sorted(file.glob("*.json")) if path.is_file()), MAX_FILES)
            else:
                yield file

    def _directory(self) -> Path:
        if self._own is None:
            self._own = tempfile.TemporaryDirectory(prefix="oncelog-console-")
        return Path(self._own.name)
