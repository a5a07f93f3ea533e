"""Errors of the disk below a data directory that concern more than one file, as the operating system has told them.

An error of one request may be answered to its client. Two kinds say more: the disk fails (I/O error, a file system that
has become read-only, a device that is gone), after which nothing that is written or read there can be trusted; or it is
full, after which only who frees space, or has another disk, can go on. A third kind is the process's own: it has no
file descriptor left, and what it could not open now it can open later.
"""

from __future__ import annotations

import errno
from typing import Final

_FAILING: Final = frozenset(
    getattr(errno, name)
    for name in ("EIO", "EROFS", "ENODEV", "ENXIO", "EUCLEAN", "EBADMSG", "ESTALE", "EREMOTEIO", "ENOTCONN")
    if hasattr(errno, name)
)
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors of a process, or a machine, that has no file descriptor left."""


class DiskErrors:
    """Noted by whoever does the I/O, in any thread; looked at by the node."""

    __slots__ = ("failure", "full", "unopened")

    def __init__(self) -> None:
        self.failure: OSError | None = None
        """The first error of a disk that fails. It stays: the process has to end."""
        self.full: OSError | None = None
        """The last error of a disk that was full, until it is looked at."""
        self.unopened: OSError | None = None
        """The last error of a file for which no descriptor was left, until it is looked at."""

    def note(self, error: OSError) -> None:
        """Keep an error that concerns the whole disk; others pass."""
        if error.errno in _FAILING:
            self.failure = self.failure or error
        elif error.errno in _FULL:
            self.full = error
        elif error.errno in OUT_OF_DESCRIPTORS:
            self.unopened = error

    def forget(self) -> None:
        """Begin anew: another process uses the disk, or the same that was mended."""
        self.failure = self.full = self.unopened = None
