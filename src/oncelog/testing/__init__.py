"""A real broker inside a test: ``with Broker() as broker: ... broker.bootstrap_servers``. See ``broker``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncelog.testing.broker import Broker as Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> object:
    """``Broker``, imported when it is first asked for, because the pytest plugin lives in this package."""
    if name == "Broker":
        from oncelog.testing.broker import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
