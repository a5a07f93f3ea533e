"""Two directories swapped in one step, and a whole tree made durable: beyond ``os.replace``.

``rename`` does not replace a directory that has something in it. Linux swaps two names atomically (``renameat2`` with
``RENAME_EXCHANGE``); a look-up of a path finds the one or the other. Nothing here falls back to two renames.
"""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache
from pathlib import Path
from typing import Any, Final

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_UNSUPPORTED: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTTY, errno.EOPNOTSUPP})


class SwapUnsupported(OSError):
    """This operating system or file system cannot swap two directories in one step."""


def swap(one: Path, other: Path) -> None:
    """Swap two paths' files or directories, atomically; both must exist, on one file system. Raises OSError."""
    renameat2 = _renameat2()
    if renameat2 is None:
        raise SwapUnsupported(errno.ENOSYS, "no renameat2 here")
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return
    code = ctypes.get_errno()
    kind = SwapUnsupported if code in _UNSUPPORTED else OSError
    raise kind(code, os.strerror(code), str(one), None, str(other))


@cache
def _renameat2() -> Any:
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    function.restype = ctypes.c_int
    return function


def fsync(path: Path) -> None:
    """fsync a file or a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(path: Path) -> None:
    """fsync a file, or a directory with everything in it, the inmost first."""
    if path.is_dir():
        for entry in sorted(path.iterdir()):
            fsync_tree(entry)
    fsync(path)
