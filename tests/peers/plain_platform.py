"""The tests as on a system without uvloop, ``renameat2`` and the flags of ``preadv2``: macOS, or an old kernel.

The switch is ``ONCELOG_TEST_PLATFORM``, for the tests and every process of Python that they start:

    ONCELOG_TEST_PLATFORM=plain python -m pytest tests/scenario/runtime
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, Final

VARIABLE: Final = "ONCELOG_TEST_PLATFORM"
_PLAIN: Final = "plain"


def is_requested() -> bool:
    """True if the environment asks for it. Raises ValueError for another platform."""
    text = os.environ.get(VARIABLE, "")
    if text not in ("", _PLAIN):
        raise ValueError(f"{VARIABLE} is {_PLAIN}, not {text}")
    return text == _PLAIN


def install() -> None:
    """Take them away from this process, before oncelog is imported."""
    sys.modules["uvloop"] = None  # type: ignore[assignment]  # an import fails
    for name in [name for name in vars(os) if name.startswith("RWF_")]:
        delattr(os, name)
    find = ctypes.CDLL.__getattr__

    def find_others(library: ctypes.CDLL, name: str) -> Any:
        if name == "renameat2":
            raise AttributeError(name)
        return find(library, name)

    ctypes.CDLL.__getattr__ = find_others  # type: ignore[method-assign]
