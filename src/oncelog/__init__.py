"""oncelog: a commit log that speaks the Kafka protocol, with exactly-once that can be inspected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncelog.arrow import read_arrow

__all__ = ["read_arrow"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import what needs numpy and pyarrow when it is asked for: the broker never does."""
    if name != "read_arrow":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return import_module("oncelog.arrow").read_arrow
