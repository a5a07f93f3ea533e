"""Errors of a registry's client; each message is one line with the request and its failure."""

from __future__ import annotations


class RegistryError(Exception):
    """A request to a registry that failed."""


class RegistryConfigError(RegistryError):
    """Settings of a registry that are not usable."""


class RegistryUnavailable(RegistryError):
    """No URL of the registry gave a usable answer in time; the same request may succeed later."""


class UnusableAnswer(RegistryUnavailable):
    """An answer that is too large, a redirect, or not what a registry says: to this request, or by another server."""


class RegistryRefused(RegistryError):
    """An answer that is an error: the HTTP status, the registry's error code, and its text."""

    def __init__(self, message: str, status: int, code: int) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class NotRegistered(RegistryRefused):
    """A subject, version, schema or id that the registry does not have."""
