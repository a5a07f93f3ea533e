"""Fetch: the API in ``handler``, reading partitions within its limits in ``reads``."""

from oncelog.handlers.fetch.handler import ERRORS, handle

__all__ = ["ERRORS", "handle"]
