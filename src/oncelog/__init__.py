"""oncelog: a commit log that speaks the Kafka protocol, with exactly-once that can be inspected.

``read_arrow`` is imported when it is asked for: it needs numpy and pyarrow, which the broker never loads. Its type is
in ``__init__.pyi``.
"""

from __future__ import annotations

from typing import Any

__all__ = ["read_arrow"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name != "read_arrow":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return import_module("oncelog.arrow").read_arrow
