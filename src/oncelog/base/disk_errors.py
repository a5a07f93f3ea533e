"""Errors of the disk below a data directory that affect more than the request at hand."""

from __future__ import annotations

import errno
from typing import Final

# No read or write there can be trusted afterwards.
_FAILING: Final = frozenset(
    getattr(errno, name)
    for name in ("EIO", "EROFS", "ENODEV", "ENXIO", "EUCLEAN", "EBADMSG", "ESTALE", "EREMOTEIO", "ENOTCONN")
    if hasattr(errno, name)
)
# An operator has to free space or add a disk.
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
# The same open may succeed later.
OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors of a process, or a machine, that has no file descriptor left."""


class DiskErrors:
    """Recorded by every thread that does I/O, polled by the node."""

    __slots__ = ("failure", "full", "unopened")

    def __init__(self) -> None:
        self.failure: OSError | None = None
        """The first error of a failing disk. Never cleared: the process has to end."""
        self.full: OSError | None = None
        """The last error of a full disk, until the node has read it."""
        self.unopened: OSError | None = None
        """The last error of an open that found no free descriptor, until the node has read it."""

    def note(self, error: OSError) -> None:
        """Record an error that concerns the whole disk; ignore others."""
        if error.errno in _FAILING:
            self.failure = self.failure or error
        elif error.errno in _FULL:
            self.full = error
        elif error.errno in OUT_OF_DESCRIPTORS:
            self.unopened = error

    def forget(self) -> None:
        """Reset, for a restarted process or a repaired disk."""
        self.failure = self.full = self.unopened = None
