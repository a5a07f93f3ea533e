"""Names of 0.7's log directories and files.

A partition's directory is ``NAME-N`` (``NAME_N`` in the design document). A file is named after its first byte's
offset, in 20 digits (11 in the document), with the suffix ``.kafka``; the first need not be 0, because the old broker
deletes from the front. A file ends where the next begins; otherwise 0.7 would not open the log.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from oncelog.base.units import INT32_MAX, INT64_MAX
from oncelog.client.errors import ClientError

_DIRECTORY: Final = re.compile(r"(?P<log>.+)[-_](?P<partition>[0-9]{1,10})")
_FILE: Final = re.compile(r"(?P<start>[0-9]{1,20})\.kafka")


class OldLogError(ClientError):
    """An old log cannot be read or continued; the text says what to do."""


class LogFile(NamedTuple):
    start: int
    path: Path


def file_start(name: str) -> int | None:
    """The offset in a file's name; None unless it is a file of a 0.7 log."""
    match = _FILE.fullmatch(name)
    start = int(match["start"]) if match else -1
    return start if 0 <= start <= INT64_MAX else None


def log_and_partition(name: str) -> tuple[str, int] | None:
    """The log and partition in a directory's name; None unless it is a partition's."""
    match = _DIRECTORY.fullmatch(name)
    if match is None or int(match["partition"]) > INT32_MAX:
        return None
    return match["log"], int(match["partition"])


def files_of(directory: Path) -> list[LogFile]:
    """The files of a partition in offset order. Raises OSError, and OldLogError if two have the same offset."""
    paths: dict[int, Path] = {}
    for name in os.listdir(directory):
        start = file_start(name)
        if start is None:
            continue
        if start in paths:
            raise OldLogError(
                f"{directory}: {paths[start].name} and {name} begin at the same offset; remove one of them"
            )
        paths[start] = directory / name
    return [LogFile(start, paths[start]) for start in sorted(paths)]


def logs_in(directory: Path) -> dict[str, dict[int, Path]]:
    """The logs of a directory, each with its partitions' directories; ``directory`` may itself be a partition's. Others
    without 0.7 files are skipped unless empty, as a new partition's may be. Raises OSError, and OldLogError if a
    partition exists twice (``NAME-N`` and ``NAME_N``).
    """
    own = log_and_partition(directory.resolve().name)
    if own is not None and any(file_start(name) is not None for name in os.listdir(directory)):
        return {own[0]: {own[1]: directory}}
    logs: dict[str, dict[int, Path]] = {}
    for path in sorted(child for child in directory.iterdir() if child.is_dir()):
        named = log_and_partition(path.name)
        if named is None or not _may_be_a_log(os.listdir(path)):
            continue
        partitions = logs.setdefault(named[0], {})
        if named[1] in partitions:
            raise OldLogError(
                f"{partitions[named[1]]} and {path} are both partition {named[1]} of {named[0]}; remove one of them"
            )
        partitions[named[1]] = path
    return logs


def _may_be_a_log(names: Iterable[str]) -> bool:
    """True for the file names of a 0.7 partition, or no files at all."""
    names = list(names)
    return not names or any(file_start(name) is not None for name in names)
