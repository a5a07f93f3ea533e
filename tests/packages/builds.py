"""Builds of the package, by hatchling in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Build(NamedTuple):
    wheel: Path
    sdist: Path


def build(source: Path, target: Path, *, umask: int = 0o022, zone: str = "UTC") -> Build:
    """The wheel and the source distribution of the tree at ``source``. Nothing tells the build a time."""
    environ = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(target)]
    subprocess.run(command, cwd=source, env={**environ, "TZ": zone}, umask=umask, check=True, capture_output=True)
    (wheel,) = target.glob("*.whl")
    (sdist,) = target.glob("*.tar.gz")
    return Build(wheel, sdist)
