"""Environments that contain the wheel and what an extra brings, made by uv from the package index."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PYTHONS = ("3.11", "3.12", "3.13")


class Environment(NamedTuple):
    python: Path

    @property
    def command(self) -> Path:
        return self.python.with_name("oncelog")

    def run(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run ``oncelog`` there, away from the checkout."""
        return subprocess.run(
            [self.command, *arguments],
            input=text,
            capture_output=True,
            text=True,
            cwd="/",
            env=variables(),
            check=False,
        )


def variables() -> dict[str, str]:
    """The variables of this process without those that lead an interpreter elsewhere."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "ONCELOG"))
    }


def install(
    home: Path, wheel: Path, extras: str = "", *, python: str | Path = sys.executable, lowest: bool = False
) -> Environment:
    """A new environment at ``home``. ``lowest``: with the lowest versions that pyproject.toml allows."""
    environment = Environment(home / "bin" / "python")
    _uv("venv", "--python", str(python), str(home))
    resolution = "lowest-direct" if lowest else "highest"
    requirement = f"oncelog[{extras}] @ {wheel.as_uri()}" if extras else str(wheel)
    _uv("pip", "install", "--python", str(environment.python), "--resolution", resolution, requirement)
    return environment


def _uv(*arguments: str) -> None:
    uv = Path(sys.executable).with_name("uv")
    done = subprocess.run([uv, "--quiet", *arguments], env=variables(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"uv {' '.join(arguments)}: {done.stderr}"


def find_python(version: str) -> Path:
    """The interpreter of a version, as ``3.12``. Skips the test if this machine has none."""
    for candidate in _candidates(version):
        done = subprocess.run([candidate, "-c", "import ssl, sqlite3"], capture_output=True, check=False)
        if done.returncode == 0:
            return candidate
    pytest.skip(f"Python {version} is not installed here")


def _candidates(version: str) -> Iterator[Path]:
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        yield Path(sys.executable)
    on_path = shutil.which(f"python{version}")
    if on_path is not None:
        yield Path(on_path)
    yield from Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob(f"{version}.*/bin/python")
