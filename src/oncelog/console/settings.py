"""Settings of a console, validated once: the cluster, who may connect from where, and which changes are allowed."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from oncelog.client.errors import ConfigError
from oncelog.console.formats.schema_files import SchemaFile
from oncelog.listening.addresses import HOST_NAME, is_addressed_to, is_loopback
from oncelog.schemas.client.settings import RegistrySettings
from oncelog.web.logins import Login, NoLogin

MAX_METRICS_URLS: Final = 32
MAX_CLUSTERS: Final = 32
CLUSTER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""A name that needs no quoting in an address."""


@dataclass(frozen=True, slots=True)
class NamedCluster:
    """One cluster of a console with several; the fields are those of ``Settings``."""

    name: str
    bootstrap: str
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    command_options: str = ""
    metrics_urls: tuple[str, ...] = ()
    registry: RegistrySettings | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a console. ``command_options`` identifies the cluster in commands to copy, without secrets.

    ``audit_log`` is required for changes. ``names`` are host names that browsers may use beside loopback and IP
    addresses. ``patience_s`` is the time a page waits for the cluster.
    """

    bootstrap: str
    client: Mapping[str, str] = field(default_factory=dict)
    command_options: str = ""
    host: str = "127.0.0.1"
    port: int = 8080
    names: frozenset[str] = frozenset()
    allow_changes: bool = False
    audit_log: Path | None = None
    login: Login = field(default_factory=NoLogin)
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    schemas: tuple[SchemaFile, ...] = ()
    audit_reports: tuple[Path, ...] = ()
    """Reports of ``oncelog audit --json``, or directories of them."""
    audit_data: tuple[Path, ...] = ()
    """Log directories that users may audit."""
    sample_every_s: float = 0.0
    """Interval between samples for the metrics page; 0 for no samples."""
    metrics_urls: tuple[str, ...] = ()
    """Metrics ports of oncelog's brokers."""
    registry: RegistrySettings | None = None
    """The schema registry whose schemas decode keys and values."""
    clusters: tuple[NamedCluster, ...] = ()
    """Named clusters; each replaces ``bootstrap``, ``client``, ``command_options``, ``metrics_urls``, ``registry``."""
    cluster: str = ""
    """The name of the cluster of these settings; empty if it has none."""
    prefix: str = ""
    """The start of the addresses of this cluster's pages, ``/c/NAME`` beside other clusters."""
    workers: int = 4
    patience_s: float = 10.0
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """Signs sessions; a new secret at each start ends them all."""

    def __post_init__(self) -> None:
        self._check_clusters()
        if self.sample_every_s and not 1 <= self.sample_every_s <= 600:
            raise ConfigError(f"--sample-every must be 0, or 1 to 600 seconds, got {self.sample_every_s:g}")
        for name in self.names:
            if not HOST_NAME.fullmatch(name):
                raise ConfigError(f"--name {name!r} is not a host name; give it without scheme and port")
        if len(self.metrics_urls) > MAX_METRICS_URLS:
            raise ConfigError(
                f"{len(self.metrics_urls)} metrics addresses were given; the maximum is {MAX_METRICS_URLS}"
            )
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigError("--tls-cert and --tls-key must be given together")
        if not is_loopback(self.host) and (not self.has_tls or isinstance(self.login, NoLogin)):
            raise ConfigError(
                f"{self.host} can be reached by others: listening there needs TLS (--tls-cert, --tls-key) and a login "
                "(--auth basic FILE, token FILE, or header NAME behind a proxy); 127.0.0.1 needs neither"
            )
        if self.allow_changes and self.audit_log is None:
            raise ConfigError("--allow-changes needs --audit-log FILE, to which every change is written")

    def _check_clusters(self) -> None:
        if len(self.clusters) > MAX_CLUSTERS:
            raise ConfigError(f"{len(self.clusters)} clusters were given; the maximum is {MAX_CLUSTERS}")
        names = [cluster.name for cluster in self.clusters]
        for name in names:
            if not CLUSTER_NAME.fullmatch(name):
                raise ConfigError(
                    f"--cluster {name!r}: a name has 1 to 64 letters, digits, '.', '_' and '-', and begins with a "
                    "letter or digit"
                )
            if names.count(name) > 1:
                raise ConfigError(f"--cluster {name} is given twice; list its brokers after one =, with commas")

    def by_cluster(self) -> tuple[Settings, ...]:
        """The settings of each cluster. The addresses of a single cluster have no prefix."""
        if not self.clusters:
            return (self,)
        return tuple(
            replace(
                self,
                clusters=(),
                cluster=cluster.name,
                prefix=f"/c/{cluster.name}" if len(self.clusters) > 1 else "",
                bootstrap=cluster.bootstrap,
                client=cluster.client,
                command_options=cluster.command_options,
                metrics_urls=cluster.metrics_urls,
                registry=cluster.registry,
            )
            for cluster in self.clusters
        )

    @property
    def has_tls(self) -> bool:
        return self.tls_certificate is not None


def may_be_addressed_as(settings: Settings, host_header: str) -> bool:
    """True if a Host header names this console: an IP address, loopback, or a configured name."""
    return is_addressed_to(host_header, settings.names | {settings.host.lower()})
