"""``oncelog`` whose disk fails, or is full, when a file beside its data directory says so: ``EIO``, ``ENOSPC``.

The calls of the operating system by which a broker reads, writes and syncs what it has open fail then, in the real
process; everything above them is what ships. As a module: ``python -m tests.cluster.disk_on_request serve …``.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from oncelog.cli.main import run

_WRITES: Final = ("pwrite", "pwritev")
_ALL: Final = (*_WRITES, "pread", "preadv", "fdatasync", "fsync")


def trigger(data_directory: Path) -> Path:
    """The file that says what is wrong with the disk of a data directory."""
    return data_directory.with_name("disk-error")


def fail(data_directory: Path, name: str) -> None:
    """Let a disk fail: ``EIO``, or ``ENOSPC`` for writes alone."""
    path = trigger(data_directory)
    new = path.with_suffix(".new")
    new.write_text(name, encoding="ascii")
    new.rename(path)  # whole, or not there


def mend(data_directory: Path) -> None:
    """Let it work again."""
    trigger(data_directory).unlink(missing_ok=True)


def _failing(call: Callable[..., Any], path: Path, *, writes: bool) -> Callable[..., Any]:
    def failing(*arguments: Any) -> Any:
        if path.exists():
            name = path.read_text("ascii")
            if writes or name != "ENOSPC":
                number = getattr(errno, name)
                raise OSError(number, os.strerror(number))
        return call(*arguments)

    return failing


def main() -> None:
    """Run the command with a disk like that."""
    path = trigger(Path(sys.argv[sys.argv.index("--data-dir") + 1]))
    for name in _ALL:
        if hasattr(os, name):
            setattr(os, name, _failing(getattr(os, name), path, writes=name in _WRITES))
    run()


if __name__ == "__main__":
    main()
