"""A listener's present TLS contexts, remade when its stores or their files (time, size or inode) change.

New handshakes use the new contexts; open connections are kept. An unusable store is logged and changes nothing.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from oncelog.base.units import SECOND_MS
from oncelog.node.listeners.broker_settings import ConfigError, StoreUnusable
from oncelog.node.listeners.principal_mapping import PrincipalMapping
from oncelog.node.listeners.tls import TlsSettings
from oncelog.runtime.tls.contexts import Contexts, make_client_context, make_contexts

_LOG: Final = logging.getLogger("oncelog.broker")
WARN_BEFORE_S: Final = 30 * 24 * 3600
"""Remaining lifetime of a certificate from which its expiry is warned of."""

_Stamp = tuple[tuple[int, int, int] | None, ...]


class Credentials:
    """A listener's TLS contexts. ``settings`` returns the present settings and may raise ConfigError."""

    def __init__(self, listener_name: str, settings: Callable[[], TlsSettings]) -> None:
        """Raises StoreUnusable or ConfigError."""
        self.listener_name = listener_name
        self._read_settings = settings
        self._settings = settings()
        self._stamp = _stamp(self._settings)
        # The unusable stores last logged, so that each is logged once.
        self._refused: tuple[TlsSettings | str, _Stamp] | None = None
        self._warned_of_s = 0
        self.contexts: Contexts = make_contexts(self._settings)
        self.mapping = PrincipalMapping(self._settings.mapping_rules)
        self.reloads = 0

    def reload(self, *, at_start: bool = False) -> bool:
        """Apply changed stores; True if there were any. May read files and derive keys. ``at_start``: the listener is
        not open yet, so all settings apply.
        """
        try:
            settings = self._read_settings()
            if not at_start:
                # As in Apache Kafka, only the stores of an open listener change, not for instance client
                # authentication.
                settings = replace(self._settings, key_store=settings.key_store, trust_store=settings.trust_store)
        except ConfigError as error:
            self._refuse((str(error), ()), error)
            return False
        stamp = _stamp(settings)
        if (settings, stamp) in ((self._settings, self._stamp), self._refused):
            return False
        try:
            contexts, mapping = make_contexts(settings), PrincipalMapping(settings.mapping_rules)
        except (StoreUnusable, ConfigError) as error:
            self._refuse((settings, stamp), error)
            return False
        self.contexts, self.mapping = contexts, mapping
        self._settings, self._stamp, self._refused = settings, stamp, None
        self.reloads += 1
        _LOG.info("listener %s: new handshakes use the changed certificate", self.listener_name)
        return True

    def _refuse(self, stores: tuple[TlsSettings | str, _Stamp], error: Exception) -> None:
        if self._refused != stores:
            self._refused = stores
            _LOG.error("listener %s keeps its present certificate: %s", self.listener_name, error)

    def warn_of_expiry(self) -> None:
        """Warn, once per certificate, that it expires soon."""
        ends_s = self.contexts.not_after_s
        remaining_s = ends_s - time.time_ns() // (SECOND_MS * 1_000_000)
        if remaining_s < WARN_BEFORE_S and self._warned_of_s != ends_s:
            self._warned_of_s = ends_s
            expiry = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(ends_s))
            verb = "expires" if remaining_s >= 0 else "has expired"
            _LOG.warning("the certificate of listener %s %s: %s", self.listener_name, verb, expiry)


class ClientCredentials:
    """The TLS context for connections to one peer, remade when its stores' files change. Unusable files are logged and
    change nothing. Thread-safe.
    """

    def __init__(self, peer: str, settings: TlsSettings) -> None:
        """``peer`` is its name in the log. Raises StoreUnusable."""
        self._peer = peer
        self._settings = settings
        self._stamp = _stamp(settings)
        self._context = make_client_context(settings)

    def context(self) -> ssl.SSLContext:
        stamp = _stamp(self._settings)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._context = make_client_context(self._settings)
            except StoreUnusable as error:
                _LOG.error("connections to %s keep their present certificates: %s", self._peer, error)
        return self._context


def _stamp(settings: TlsSettings) -> _Stamp:
    return tuple(map(_stamp_of, settings.locations))


def _stamp_of(location: str) -> tuple[int, int, int] | None:
    try:
        status = Path(location).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
