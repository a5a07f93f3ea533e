"""Commands that start Python processes without the working directory on their module path.

``python -m`` searches the working directory first, so that a ``base64.py`` there would replace Python's own.
"""

from __future__ import annotations

import sys
from typing import Final

SAFE_PATH: Final = ("PYTHONSAFEPATH", "1")
"""The same as an environment variable, for the Python workers that Spark starts."""


def python_module(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", module, *arguments]


def python_program() -> str:
    """The interpreter of this process, to be passed to Spark."""
    return sys.executable
