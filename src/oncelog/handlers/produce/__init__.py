"""Produce: the API in ``handler``; appending, record validation and verification of transactions beside it."""

from oncelog.handlers.produce.handler import ERRORS, handle

__all__ = ["ERRORS", "handle"]
