"""Errors of the stores that TLS is set up from."""

from __future__ import annotations


class StoreUnusable(Exception):
    """A key or trust store cannot be used; the message says which, and what to do."""
