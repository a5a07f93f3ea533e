"""Errors of single values: bytes that a schema does not explain, and values that do not fit one."""

from __future__ import annotations

INSTALL = "pip install 'oncelog[registry]'"


class NotReadable(Exception):
    """Bytes that are not in the expected format, or a library that is not installed."""


class NotWritable(ValueError):
    """A value that does not fit its schema; the text says which part of it."""
