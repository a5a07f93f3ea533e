"""Produce: the API in ``handler``, one partition of it in ``partition_append``, transactions in ``verification``."""

from oncelog.handlers.produce.handler import ERRORS, handle

__all__ = ["ERRORS", "handle"]
