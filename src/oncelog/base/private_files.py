"""Files that hold records, secrets or what administrators did: made for their owner alone, whatever the umask lets."""

from __future__ import annotations

import os
import stat
from typing import Final

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
_OTHERS: Final = 0o077


def private_opener(path: str, flags: int) -> int:
    """The ``opener`` of ``open`` for such a file. A file that is there keeps its mode: it is its owner's to choose."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def exposed_mode(path: str | os.PathLike[str]) -> str | None:
    """The mode of a file or directory that users other than its owner have rights in; None where it is private."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    return f"{mode:04o}" if mode & _OTHERS else None
