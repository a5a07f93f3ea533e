"""Swaps two directories atomically, and makes a whole tree durable.

Linux swaps two names (``renameat2`` with ``RENAME_EXCHANGE``), even of directories that are not empty. There is no
fallback to two renames.
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
    """This operating system or file system cannot swap two directories atomically."""


def swap(first: Path, second: Path) -> None:
    """Swap two files or directories, which must exist, on one file system. Raises OSError."""
    renameat2 = _renameat2()
    if renameat2 is None:
        raise SwapUnsupported(errno.ENOSYS, "this system has no renameat2")
    if renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return
    code = ctypes.get_errno()
    kind = SwapUnsupported if code in _UNSUPPORTED else OSError
    raise kind(code, os.strerror(code), str(first), None, str(second))


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
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(path: Path) -> None:
    if path.is_dir():
        for entry in sorted(path.iterdir()):
            fsync_tree(entry)
    fsync(path)
