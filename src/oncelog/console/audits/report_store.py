"""Audits that a console knows, by their keys: reports from files, uploaded reports, and its own runs.

The rule: a key is looked up in what is there; no path is ever made of one. What was uploaded and what was run lies in a
directory that ends with the console, ``MOST_KEPT`` of each. Uploads and runs have their lines in the audit, a run one
before it is started and one when it is over.
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
from oncelog.console.audits.report import LARGEST, AuditReport, BadReport, read_report
from oncelog.console.audits.runs import AuditRun, Start, State, command_of, lacking, process_of
from oncelog.console.query import BadQuery

MOST_KEPT: Final = 8
MOST_FILES: Final = 500


class NoSuchAudit(BadQuery):
    """No report or run of that name."""

    status = 404


@dataclass(frozen=True, slots=True)
class Listed:
    key: str
    source: str
    """``file``, ``upload`` or ``run``."""
    written_ms: int
    size_bytes: int


class AuditReports:
    """Reports and runs; used by several threads."""

    def __init__(
        self, files: Sequence[Path], data: Sequence[Path], start: Start = AuditRun, audit: Audit = no_audit
    ) -> None:
        self.directories: Mapping[str, Path] = {str(one): one for one in data}
        """Directories that may be audited, by the names they are asked for by."""
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
            made = [(key, "upload", path) for key, path in self._uploads.items()]
            made += [(key, "run", one.report) for key, one in self._runs.items() if one.state == "done"]
        found = []
        for key, source, path in [*made, *((str(path), "file", path) for path in self._report_files())]:
            try:
                status = path.stat()
            except OSError:
                continue
            found.append(Listed(key, source, int(status.st_mtime * 1000), status.st_size))
        return sorted(found, key=lambda one: (-one.written_ms, one.key))

    def open(self, key: str) -> AuditReport:
        """A report. Raises NoSuchAudit, BadReport."""
        with self._lock:
            run, path = self._runs.get(key), self._uploads.get(key)
        if run is not None and run.state == "done":
            path = run.report
        if path is None:
            path = next((file for file in self._report_files() if str(file) == key), None)
        if path is None:
            raise NoSuchAudit(f"there is no report {key!r} here: what is uploaded or run ends with the console")
        try:
            return self._read(key, path)
        except BadReport as error:
            raise BadReport(f"{key}: {error}") from None

    def _read(self, key: str, path: Path) -> AuditReport:
        """The report of a file; the last one is kept, since its pages are turned."""
        try:
            status = path.stat()
            known = self._last
            name = key, status.st_mtime_ns, status.st_size
            if known is not None and known[0] == name:
                return known[1]
            if status.st_size > LARGEST:
                raise BadReport(f"it has {status.st_size} bytes; {LARGEST} are the most")
            with path.open("rb") as file:
                report = read_report(file.read(LARGEST + 1))
        except OSError as error:
            raise BadReport(f"it cannot be read: {error.strerror}") from None
        self._last = name, report
        return report

    def upload(self, text: str, sender: Sender) -> str:
        """Keep a report, and return its key. Raises BadReport, and ClientError for the audit log."""
        document = text.encode()
        read_report(document)
        digest = hashlib.sha256(document).hexdigest()
        with self._lock:
            key = f"upload-{next(self._numbers)}"
            path = self._directory() / f"{key}.json"
            path.write_bytes(document)
            self._uploads[key] = path
            while len(self._uploads) > MOST_KEPT:
                self._uploads.pop(next(iter(self._uploads))).unlink(missing_ok=True)
        self._note(sender, "upload-audit-report", "done", key=key, bytes=len(document), sha256=digest)
        return key

    def run(self, names: Sequence[str], sender: Sender, *, copied_within_s: int | None, check_crc: bool) -> AuditRun:
        """Start an audit of directories by their names. Raises BadQuery where that cannot be now, and ClientError for
        the audit log."""
        unknown = [name for name in names if name not in self.directories]
        if unknown or not names:
            raise BadQuery(f"{unknown[0]!r} is none of the directories of --audit-data" if unknown else "no directory")
        if reasons := lacking():
            raise BadQuery(f"an audit needs {' and '.join(reasons)}")
        with self._lock:
            if any(not one.is_over for one in self._runs.values()):
                raise BadQuery("an audit is running already; wait for it, or cancel it")
            key = f"run-{next(self._numbers)}"
            command = command_of(names, copied_within_s=copied_within_s, check_crc=check_crc)
            report = self._directory() / f"{key}.json"
            details = {"key": key, "directories": list(names), "command": command}

            def ended(run: AuditRun, state: State) -> None:
                said = {"error": run.said[-1]} if state == "failed" and run.said else {}
                self._note(sender, "run-audit", state, **details, **said)

            self._note(sender, "run-audit", "starting", **details)
            try:
                made = self._start(key, names, process_of(command), report, sender.user, ended)
            except OSError as error:
                reason = f"the audit could not be started: {error.strerror}"
                self._note(sender, "run-audit", "failed", **details, error=reason)
                raise BadQuery(reason) from None
            self._runs[key] = made
            while len(self._runs) > MOST_KEPT:
                self._runs.pop(next(iter(self._runs))).report.unlink(missing_ok=True)
            return made

    def cancel(self, key: str, sender: Sender) -> None:
        """End a run, which has a line of its own when it is over. Raises NoSuchAudit, and ClientError for the log."""
        run = self.run_of(key)
        self._note(sender, "cancel-audit", "done", key=key)
        run.cancel()

    def _note(self, sender: Sender, action: str, outcome: str, **details: object) -> None:
        console_audit(self._audit, sender.user, sender.address)(entry_of(action, outcome, **details))

    def runs(self) -> list[AuditRun]:
        with self._lock:
            return list(reversed(self._runs.values()))

    def run_of(self, key: str) -> AuditRun:
        """A run. Raises NoSuchAudit."""
        with self._lock:
            found = self._runs.get(key)
        if found is None:
            raise NoSuchAudit(f"there is no run {key!r}: runs end with the console, and the last {MOST_KEPT} are kept")
        return found

    def close(self) -> None:
        for one in self.runs():
            one.cancel()
        for one in self.runs():
            one.wait(15.0)
        with self._lock:
            if self._own is not None:
                self._own.cleanup()
                self._own = None

    def _report_files(self) -> Iterator[Path]:
        """Report files that were named, and those of directories that were."""
        for file in self._files:
            if file.is_dir():
                yield from itertools.islice(
                    (path for path in sorted(file.glob("*.json")) if path.is_file()), MOST_FILES
                )
            else:
                yield file

    def _directory(self) -> Path:
        if self._own is None:
            self._own = tempfile.TemporaryDirectory(prefix="oncelog-console-")
        return Path(self._own.name)
