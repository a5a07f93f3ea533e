"""The TLS of one listener as it is now: contexts that are made anew when its stores change, or their files.

New handshakes take the new ones; connections that are there stay. A store that cannot be used changes nothing: the
broker goes on with what it had, and says so. Files count as changed when their time, size or inode has.
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
"""Time before the end of a certificate from which on it is warned of."""

_Stamp = tuple[tuple[int, int, int] | None, ...]


class Credentials:
    """A listener's TLS context, made anew when its stores change. ``settings`` gives those of the present
    configuration; it may raise ConfigError."""

    def __init__(self, listener_name: str, settings: Callable[[], TlsSettings]) -> None:
        """Raises StoreUnusable or ConfigError."""
        self.listener_name = listener_name
        self._read_settings = settings
        self._settings = settings()
        self._stamp = _stamp(self._settings)
        self._refused: tuple[TlsSettings | str, _Stamp] | None = None
        """The stores that could not be used, so that it is said once."""
        self._warned_of_s = 0
        self.contexts: Contexts = make_contexts(self._settings)
        self.mapping = PrincipalMapping(self._settings.mapping_rules)
        self.reloads = 0

    def reload(self, *, at_start: bool = False) -> bool:
        """Take up what has changed; True if something was taken up. May read files and derive keys.

        Of a listener that is open only the stores change, as in Apache Kafka: whether a client has to show a
        certificate does not. ``at_start`` the listener is not open yet, and all keys count.
        """
        try:
            settings = self._read_settings()
            if not at_start:
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
        _LOG.info("listener %s: new handshakes take the certificate as it is now", self.listener_name)
        return True

    def _refuse(self, what: tuple[TlsSettings | str, _Stamp], error: Exception) -> None:
        if self._refused != what:
            self._refused = what
            _LOG.error("listener %s keeps the certificate it has: %s", self.listener_name, error)

    def warn_of_expiry(self) -> None:
        """Say, once for each certificate, that its end is near."""
        ends_s = self.contexts.not_after_s
        left_s = ends_s - time.time_ns() // (SECOND_MS * 1_000_000)
        if left_s < WARN_BEFORE_S and self._warned_of_s != ends_s:
            self._warned_of_s = ends_s
            when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(ends_s))
            verb = "expires" if left_s >= 0 else "has expired"
            _LOG.warning("the certificate of listener %s %s: %s", self.listener_name, verb, when)


class ClientCredentials:
    """The TLS of connections that this process makes to one peer: a context for each, made anew when the files of the
    stores have changed. Files that cannot be used change nothing, and are said in the log. Any thread may ask."""

    def __init__(self, peer: str, settings: TlsSettings) -> None:
        """``peer`` is its name in the log. Raises StoreUnusable."""
        self._peer = peer
        self._settings = settings
        self._stamp = _stamp(settings)
        self._context = make_client_context(settings)

    def context(self) -> ssl.SSLContext:
        """The context of the next connection."""
        stamp = _stamp(self._settings)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._context = make_client_context(self._settings)
            except StoreUnusable as error:
                _LOG.error("connections to %s keep the certificates they have: %s", self._peer, error)
        return self._context


def _stamp(settings: TlsSettings) -> _Stamp:
    return tuple(map(_stamp_of, settings.locations))


def _stamp_of(location: str) -> tuple[int, int, int] | None:
    try:
        found = Path(location).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
