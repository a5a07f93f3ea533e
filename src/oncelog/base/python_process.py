"""Python processes that this program starts: nothing of their working directory is on their path.

``python -m`` puts the working directory first, so that a ``base64.py`` there would be run in the place of Python's own.
"""

from __future__ import annotations

import sys
from typing import Final

SAFE_PATH: Final = ("PYTHONSAFEPATH", "1")
"""The same as a variable of the environment, for the Python workers that Spark starts."""


def python_module(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this installation."""
    return [sys.executable, "-P", "-m", module, *arguments]


def python_program() -> str:
    """The interpreter that this process runs in, to be named to Spark."""
    return sys.executable
