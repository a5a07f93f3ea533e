"""``oncelog``, whose wall clock is off by what a file says: `python -m tests.interop.faults.skewed FILE serve …`.

Only the Clock port is wrapped; the file holds nanoseconds, little-endian, and may change at any time.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from pathlib import Path

from oncelog.runtime import server
from oncelog.runtime.clock import WallClock

FORMAT = struct.Struct("<q")


def set_skew(file: Path, nanoseconds: int) -> None:
    """From now on the clock of who reads ``file`` is off by so much."""
    with file.open("r+b" if file.exists() else "w+b") as opened:
        opened.write(FORMAT.pack(nanoseconds))


def main() -> None:
    """Run the command line with a skewed clock."""
    with Path(sys.argv.pop(1)).open("rb") as opened:
        skew = mmap.mmap(opened.fileno(), FORMAT.size, access=mmap.ACCESS_READ)

    def wall_ns() -> int:
        return time.time_ns() + int(FORMAT.unpack(skew[: FORMAT.size])[0])

    server.WallClock = lambda: WallClock(wall_ns)  # type: ignore[misc, assignment, attr-defined]  # the port, wrapped
    from oncelog.cli.main import run

    run()


if __name__ == "__main__":
    main()
