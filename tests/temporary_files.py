"""Temporary files of tests are kept in memory where it has room for them.

A broker syncs its metadata a dozen times from its start to its end, which takes a disk longer than all else that a
small test does. No test can tell: a process that is killed loses nothing either way, and power cuts are simulated.
`tests.filesystems` runs the tests of durability on real file systems.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

_MEMORY: Final = Path("/dev/shm")
_LEAST_BYTES: Final = 4 << 30


def keep_in_memory() -> None:
    """For this process and its children, unless TMPDIR names a place. Call it before anything asks for the place."""
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK):
        return
    status = os.statvfs(_MEMORY)
    runs_programs = not status.f_flag & os.ST_NOEXEC  # some tests write programs there
    if runs_programs and status.f_bavail * status.f_frsize >= _LEAST_BYTES:
        os.environ["TMPDIR"] = str(_MEMORY)
        tempfile.tempdir = None
