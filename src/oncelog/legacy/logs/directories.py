"""Names of 0.7's directories and files, and what a directory of logs holds.

A partition's directory is ``NAME-N`` (``NAME_N``, as the design document prints it); its files are named for the offset
of their first byte, in 20 digits (11 in the document), and end in ``.kafka``. The first need not be 0: the old broker
deletes from the front. A file's end is the next one's name, or 0.7 would not open the log.
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
    """An old log cannot be read, or not gone on with; the text says what to do."""


class LogFile(NamedTuple):
    """A file of a partition, and the offset of its first byte."""

    start: int
    path: Path


def file_start(name: str) -> int | None:
    """The offset in a file's name; None if it is no file of a 0.7 log."""
    found = _FILE.fullmatch(name)
    start = int(found["start"]) if found else -1
    return start if 0 <= start <= INT64_MAX else None


def log_and_partition(name: str) -> tuple[str, int] | None:
    """Log and partition in a directory's name; None if it is no partition's."""
    found = _DIRECTORY.fullmatch(name)
    if found is None or int(found["partition"]) > INT32_MAX:
        return None
    return found["log"], int(found["partition"])


def files_of(directory: Path) -> list[LogFile]:
    """The files of a partition in order of their offsets. Raises OldLogError if two have the same, OSError."""
    found: dict[int, Path] = {}
    for name in os.listdir(directory):
        start = file_start(name)
        if start is None:
            continue
        if start in found:
            raise OldLogError(f"{directory}: {found[start].name} and {name} begin at the same offset: take one away")
        found[start] = directory / name
    return [LogFile(start, found[start]) for start in sorted(found)]


def logs_in(directory: Path) -> dict[str, dict[int, Path]]:
    """The logs of a directory, each with its partitions' directories; ``directory`` may be one partition itself.

    Directories without a file of 0.7 are passed over unless they are empty, as a new partition's may be. Raises
    OldLogError for a partition that is there twice (``NAME-N`` and ``NAME_N``), OSError.
    """
    mine = log_and_partition(directory.resolve().name)
    if mine is not None and any(file_start(name) is not None for name in os.listdir(directory)):
        return {mine[0]: {mine[1]: directory}}
    logs: dict[str, dict[int, Path]] = {}
    for path in sorted(one for one in directory.iterdir() if one.is_dir()):
        named = log_and_partition(path.name)
        if named is None or not _may_be_a_log(os.listdir(path)):
            continue
        partitions = logs.setdefault(named[0], {})
        if named[1] in partitions:
            raise OldLogError(
                f"{partitions[named[1]]} and {path} are both partition {named[1]} of {named[0]}: take one away"
            )
        partitions[named[1]] = path
    return logs


def _may_be_a_log(names: Iterable[str]) -> bool:
    """True for the files of a partition of 0.7, or none at all."""
    names = list(names)
    return not names or any(file_start(name) is not None for name in names)
