"""Files that hold records, secrets or audit logs: created for their owner alone, whatever the umask."""

from __future__ import annotations

import os
import stat
from typing import Final

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
_OTHERS: Final = 0o077


def private_opener(path: str, flags: int) -> int:
    """An ``opener`` for ``open`` that creates private files."""
    # An existing file keeps its mode: that is its owner's choice.
    # O_CLOEXEC: child processes do not inherit the file.
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def exposed_mode(path: str | os.PathLike[str]) -> str | None:
    """The mode of a file or directory that other users can access; None if it is private."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    return f"{mode:04o}" if mode & _OTHERS else None
