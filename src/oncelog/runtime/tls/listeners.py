"""The TLS of all listeners: their credentials, checked for changes every second, and their handshakes."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.security import Endpoint
from oncelog.base.units import SECOND_MS
from oncelog.node.assembly import StartRefused
from oncelog.node.listeners.broker_settings import BrokerConfig, ConfigError, Settings, StoreUnusable
from oncelog.node.listeners.tls import TlsSettings, tls_settings
from oncelog.runtime.tls.connection import BUFFER_SIZE, Above, TlsConnection
from oncelog.runtime.tls.credentials import Credentials
from oncelog.runtime.tls.handshakes import Handshakes

if TYPE_CHECKING:
    from oncelog.runtime.workers import Workers

_LOG: Final = logging.getLogger("oncelog.broker")
LOOK_EVERY_S: Final = 1.0


class ListenersTls:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._config: Callable[[], BrokerConfig] = lambda: settings.config
        self._endpoints = [endpoint for endpoint in settings.listeners.endpoints if endpoint.protocol.has_tls]
        self._timer: asyncio.TimerHandle | None = None
        self._workers: Workers | None = None
        self._is_checking = False
        self.credentials: dict[str, Credentials] = {}
        """Credentials by listener name."""
        self.handshakes: Handshakes | None = None
        """None: no listener has TLS."""

    def prepare(self) -> None:
        """Read the stores of the static configuration. Raises StartRefused."""
        for endpoint in self._endpoints:
            if self._settings_of(endpoint).key_store.is_given:  # others may come from the cluster's metadata
                self._load(endpoint)

    def start(self, loop: asyncio.AbstractEventLoop, config: Callable[[], BrokerConfig], workers: Workers) -> None:
        """Read the missing stores, and check for changes from now on. Raises StartRefused."""
        if not self._endpoints:
            return
        self._config, self._workers = config, workers
        static = self._settings.config
        self.handshakes = Handshakes(
            loop,
            timeout_s=int(static.get("oncelog.tls.handshake.timeout.ms")) / SECOND_MS,
            most=int(static.get("oncelog.tls.handshakes.max")),
        )
        for endpoint in self._endpoints:
            credentials = self.credentials.get(endpoint.listener_name) or self._load(endpoint)
            credentials.reload(at_start=True)
            credentials.warn_of_expiry()
        self._timer = loop.call_later(LOOK_EVERY_S, self._check, loop)

    def protocol_factory(self, endpoint: Endpoint, plain: Callable[[], Above]) -> Callable[[], TlsConnection]:
        """Makes the listener's connections; ``plain`` makes the connections above them."""
        buffer = memoryview(bytearray(BUFFER_SIZE))

        def make() -> TlsConnection:
            assert self.handshakes is not None
            credentials = self.credentials[endpoint.listener_name]
            return TlsConnection(plain(), endpoint.protocol, credentials, self.handshakes, buffer)

        return make

    def client_context(self, listener_name: str) -> ssl.SSLContext:
        """The context for connections to other brokers' listeners of a name. Raises StoreUnusable."""
        credentials = self.credentials.get(listener_name)
        if credentials is None:
            raise StoreUnusable(f"this broker has no listener {listener_name} with TLS")
        return credentials.contexts.client

    def reload(self) -> None:
        """Apply changed stores at once. Reads files."""
        for credentials in self.credentials.values():
            credentials.reload()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.handshakes is not None:
            self.handshakes.close()

    def _settings_of(self, endpoint: Endpoint) -> TlsSettings:
        try:
            return tls_settings(self._config(), endpoint.listener_name, endpoint.protocol)
        except ConfigError as error:
            raise StartRefused(str(error)) from None

    def _load(self, endpoint: Endpoint) -> Credentials:
        name = endpoint.listener_name
        try:
            credentials = Credentials(name, lambda: tls_settings(self._config(), name, endpoint.protocol))
        except (ConfigError, StoreUnusable) as error:
            raise StartRefused(f"listener {name}: {error}") from None
        self.credentials[name] = credentials
        return credentials

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(LOOK_EVERY_S, self._check, loop)
        if self._is_checking or self._workers is None:
            return
        self._is_checking = True
        self._workers.submit(partial(self._reload, list(self.credentials.values())))

    def _reload(self, all_credentials: Iterable[Credentials]) -> Callable[[], None]:
        """Reload credentials on a worker; returns the callback for the loop."""
        try:
            for credentials in all_credentials:
                credentials.reload()
                credentials.warn_of_expiry()
        except Exception:  # noqa: BLE001 - the next check may succeed
            _LOG.exception("the certificates cannot be checked for changes")
        return self._checked

    def _checked(self) -> None:
        self._is_checking = False
