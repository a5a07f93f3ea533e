"""A registry as a running server: its settings, its start in order, and its end."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from oncelog.client.aio import AsyncClient, ClientConfig
from oncelog.client.errors import ClientError, ConfigError
from oncelog.listening.addresses import is_loopback
from oncelog.registry.errors import RegistryError
from oncelog.registry.formats import Formats
from oncelog.registry.http.application import Access, Application
from oncelog.registry.http.permissions import Permissions
from oncelog.registry.service import Registry
from oncelog.registry.store import Store
from oncelog.registry.topic import SchemasTopic
from oncelog.registry.topic_records import TOPIC
from oncelog.web.logins import Login, NoLogin
from oncelog.web.server import HttpServer, log_failures, server_config

CLIENT_ID: Final = "oncelog-registry"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a registry. ``client`` holds client properties of the cluster; ``names`` are host names of this
    server that web pages may use."""

    bootstrap: str
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    host: str = "127.0.0.1"
    port: int = 8081
    topic: str = TOPIC
    read_only: bool = False
    is_open: bool = False
    """True if everybody who reaches the address may use it, also from other machines."""
    login: Login = field(default_factory=NoLogin)
    permissions: Permissions = field(default_factory=Permissions)
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    names: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigError("--tls-cert and --tls-key must be given together")
        if not self.has_login and not self.is_open and not is_loopback(self.host):
            raise ConfigError(
                f"{self.host} can be reached from other machines: give --auth basic FILE or --auth token FILE, or "
                "--open to let everybody there read and write schemas"
            )
        if self.permissions.grants is not None and not self.has_login:
            raise ConfigError("--permissions needs users: give --auth, too")

    @property
    def has_login(self) -> bool:
        return not isinstance(self.login, NoLogin)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls_certificate is None else 'https'}://{host}:{self.port}"


@asynccontextmanager
async def opened(settings: Settings, formats: Formats, *, create: bool = True) -> AsyncIterator[Registry]:
    """A registry that has read its topic; with ``create`` the topic is made if it is missing. Raises ClientError."""
    config = ClientConfig.from_properties({"client.id": CLIENT_ID, **settings.client})
    async with AsyncClient(settings.bootstrap, config=config) as client:
        topic = SchemasTopic(client, Store(), settings.topic)
        try:
            await topic.start(create=create)
            registry = Registry(topic, formats, client.view.cluster_id or "", read_only=settings.read_only)
            try:
                yield registry
            finally:
                registry.close()
        except RegistryError as error:
            raise ClientError(error.message) from None
        finally:
            await topic.close()


class RegistryServer:
    """A registry on the running loop. ``serve`` returns when it was told to end."""

    def __init__(self, settings: Settings, formats: Formats) -> None:
        self._settings = settings
        self._formats = formats
        self.server: HttpServer | None = None

    async def serve(self, on_listening: Callable[[], object], bound: list[socket.socket] | None = None) -> None:
        """Read the topic, then listen, on ``bound`` sockets if they are given. Raises ClientError if either fails."""
        settings = self._settings
        async with opened(settings, self._formats, create=not settings.read_only) as registry:
            await self._listen(registry, on_listening, bound)

    async def _listen(
        self, registry: Registry, on_listening: Callable[[], object], bound: list[socket.socket] | None
    ) -> None:
        settings = self._settings
        names = settings.names | {settings.host.lower()}
        is_for_this_machine = not settings.has_login and not settings.is_open and is_loopback(settings.host)
        access = Access(settings.login, settings.permissions, names, is_for_this_machine)
        app = Application(registry, access)
        config = server_config(app, settings.host, settings.port, settings.tls_certificate, settings.tls_key)
        self.server = HttpServer(config, "the registry")
        log_failures(self.server)
        self.server.on_listening = on_listening
        self.server.bound = bound
        await self.server.serve()

    def end(self) -> None:
        """Let ``serve`` return soon; on its loop."""
        if self.server is not None:
            self.server.should_exit = True
