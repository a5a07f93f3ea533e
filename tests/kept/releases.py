"""The kept files of a version: its broker's program, a data directory, a cluster of three, and what they must serve.

``python -m tests.kept.make`` wrote them. Archives are compressed as one stream, a third of a wheel's size.
"""

from __future__ import annotations

import json
import sys
import tarfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

RELEASES: Final = Path(__file__).parent
RELEASE: Final = "0.1"
PROGRAM, BROKER, CLUSTER, READING = "oncelog.tar.xz", "broker.tar.xz", "cluster.tar.xz", "reading.json"
_RUN: Final = "import sys; sys.path.insert(0, sys.argv.pop(1)); from oncelog.cli.main import run; run()"
"""The program's modules come before those of the tree, which is installed for this Python."""
_TIME_S: Final = 1_750_000_000
"""The time of every packed file."""


def pack(archive: Path, directory: Path, names: Iterable[str]) -> None:
    """Pack files and folders of a directory, the same bytes for the same content."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = _TIME_S
        return entry

    with tarfile.open(archive, "w:xz", format=tarfile.PAX_FORMAT, preset=9) as packed:
        for name in sorted(names):
            packed.add(directory / name, name, filter=plain)


def unpack(name: str, directory: Path, release: str = RELEASE) -> Path:
    """Unpack a kept archive; returns the directory."""
    with tarfile.open(RELEASES / release / name) as packed:
        packed.extractall(directory, filter="data")
    return directory


def reading(name: str, release: str = RELEASE) -> dict[str, Any]:
    """The answers of a broker of the release on a copy of ``BROKER`` or ``CLUSTER``."""
    document: dict[str, Any] = json.loads((RELEASES / release / READING).read_text("utf-8"))[name]
    return document


@cache
def _unpacked(release: str) -> TemporaryDirectory[str]:
    directory = TemporaryDirectory(prefix=f"oncelog-{release}-")
    unpack(PROGRAM, Path(directory.name), release)
    return directory


def program(release: str = RELEASE) -> Sequence[str]:
    """The command of the release's ``oncelog serve``; its modules are unpacked once a process."""
    return [sys.executable, "-c", _RUN, _unpacked(release).name]
