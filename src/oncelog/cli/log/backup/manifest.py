"""The manifest of a backup: its header, a line of JSON for each file, and a last line with their number and a checksum.

It is written last. A directory without one, or with one that lacks its last line, is no whole backup.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from oncelog.base.private_files import private_opener
from oncelog.client.errors import ClientError

MANIFEST: Final = "backup-manifest.jsonl"
FORMAT: Final = 1
_LONGEST_LINE: Final = 64 << 10


class BackupError(ClientError):
    """A backup cannot be made, read or restored."""


@dataclass(frozen=True)
class Header:
    cluster_id: str
    brokers: Sequence[int]
    tree: str
    """Path of the cluster's metadata in the backup."""
    point: str
    """The moment whose state the backup has: ISO 8601, UTC."""
    oncelog: str
    """Version of the program that made it."""
    format: int = FORMAT


class Entry(NamedTuple):
    path: str
    size: int
    sha256: str
    modified_ns: int
    source: Sequence[int]
    """Device and inode of the broker's file; empty for the cluster's metadata."""


class ManifestWriter:
    def __init__(self, path: Path, header: Header) -> None:
        self._file: IO[bytes] = open(path, "xb", opener=private_opener)  # noqa: SIM115  # closed by finish
        self._digest = hashlib.sha256()
        self.files = 0
        self.bytes = 0
        self._line(asdict(header))

    def add(self, entry: Entry) -> None:
        self._line(entry._asdict())
        self.files += 1
        self.bytes += entry.size

    def finish(self) -> None:
        """Write the last line, and make the manifest durable."""
        self._line({"files": self.files, "bytes": self.bytes, "sha256": self._digest.hexdigest()})
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def _line(self, fields: dict[str, Any]) -> None:
        line = json.dumps(fields).encode() + b"\n"
        self._digest.update(line)
        self._file.write(line)


class Manifest:
    """A backup's manifest, read twice: once whole for its checksum, then entry by entry. Raises BackupError."""

    def __init__(self, backup: Path) -> None:
        self.backup = backup
        self._path = backup / MANIFEST
        digest, line, count = hashlib.sha256(), b"", 0
        header: dict[str, Any] | None = None
        for count, line in enumerate(self._lines()):  # noqa: B007  # the last line is looked at below
            if header is None:
                header = self._checked_header(line)
            elif line.startswith(b'{"files"'):
                break
            digest.update(line)
        last = self._parsed(line)
        if header is None or last.get("sha256") != digest.hexdigest() or last.get("files") != count - 1:
            raise BackupError(f"{self._path} is damaged or incomplete: its last line does not match the others")
        try:
            self.header = Header(**header)
            self.files, self.bytes = int(last["files"]), int(last["bytes"])
            is_readable = bool(self.header.brokers) and all(type(broker) is int for broker in self.header.brokers)
        except (TypeError, KeyError, ValueError):
            is_readable = False
        if not is_readable:
            raise BackupError(f"{self._path} is damaged: its header cannot be read")
        self._check_path(self.header.tree)

    def entries(self) -> Iterator[Entry]:
        for count, line in enumerate(self._lines()):
            if 0 < count <= self.files:
                entry: Entry | None
                try:
                    entry = Entry(**self._parsed(line))
                except TypeError:
                    entry = None
                if entry is None or type(entry.size) is not int or type(entry.modified_ns) is not int:
                    raise BackupError(f"{self._path} is damaged: line {count + 1} names no file")
                self._check_path(entry.path)
                yield entry

    def _lines(self) -> Iterator[bytes]:
        try:
            with open(self._path, "rb") as file:
                while line := file.readline(_LONGEST_LINE):
                    yield line
        except (FileNotFoundError, NotADirectoryError):
            raise BackupError(
                f"{self.backup} is no whole backup: it has no {MANIFEST}, which oncelog log backup writes last"
            ) from None

    def _checked_header(self, line: bytes) -> dict[str, Any]:
        header = self._parsed(line)
        if header.get("format") != FORMAT:
            raise BackupError(
                f"{self.backup} is a backup of format {header.get('format')}, and this version of oncelog reads format "
                f"{FORMAT}: use the version that made it ({header.get('oncelog')}) or a later one"
            )
        return header

    def _parsed(self, line: bytes) -> dict[str, Any]:
        try:
            fields = json.loads(line or b"null")
        except ValueError:
            fields = None
        if not isinstance(fields, dict):
            raise BackupError(f"{self._path} is damaged or incomplete: it has a line that is no JSON object")
        return fields

    def _check_path(self, path: object) -> None:
        # A restore writes to these paths.
        if not isinstance(path, str) or not all(
            part not in ("", ".", "..") and "\0" not in part for part in path.split("/")
        ):
            raise BackupError(f"{self._path} is damaged: {path!r} is no path within a backup")
