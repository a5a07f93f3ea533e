"""A directory with modules in it that no program should run, named as those of the standard library and of others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

_THIRD: Final = ("typing_extensions", "oncelog", "numpy", "pyarrow", "pyspark", "py4j", "cramjam", "crc32c", "fastavro")
NAMES: Final = (*sorted(sys.stdlib_module_names - set(sys.builtin_module_names)), *_THIRD)
RUN: Final = "run.txt"


def plant(directory: Path) -> None:
    """Put the modules there. Each notes its name in ``RUN`` when it is imported, and fails."""
    text = f"open({str(directory / RUN)!r}, 'a').write(__name__ + chr(10))\nraise ImportError('hostile')\n"
    for name in NAMES:
        (directory / f"{name}.py").write_text(text, encoding="utf-8")


def modules_run(directory: Path) -> list[str]:
    """The names of those that were imported."""
    run = directory / RUN
    return run.read_text("utf-8").split() if run.exists() else []
