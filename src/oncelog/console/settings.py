"""Settings of a console, checked once: which cluster, who may come from where, what may be changed."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from oncelog.client.errors import ConfigError
from oncelog.console.formats.schema_files import SchemaFile
from oncelog.console.logins import Login, Nobody
from oncelog.listening.addresses import HOST_NAME, is_addressed_to

MOST_METRICS_URLS: Final = 32


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that a console was started with.

    ``command_options`` names the cluster in commands to copy, without secrets. ``audit_log`` is needed for changes.
    ``names`` are host names by which browsers may address it, beside those of loopback and IP addresses.
    ``patience_s`` is the time a page waits for the cluster.
    """

    bootstrap: str
    client: Mapping[str, str] = field(default_factory=dict)
    command_options: str = ""
    host: str = "127.0.0.1"
    port: int = 8080
    names: frozenset[str] = frozenset()
    allow_changes: bool = False
    audit_log: Path | None = None
    login: Login = field(default_factory=Nobody)
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    schemas: tuple[SchemaFile, ...] = ()
    audit_reports: tuple[Path, ...] = ()
    """Files, and directories of files, that ``oncelog audit --json`` wrote."""
    audit_data: tuple[Path, ...] = ()
    """Log directories that may be audited from here."""
    sample_every_s: float = 0.0
    """Pause between looks for the page of metrics; 0 for none."""
    metrics_urls: tuple[str, ...] = ()
    """Metrics ports of oncelog's brokers."""
    workers: int = 4
    patience_s: float = 10.0
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """Signs sessions; another one at each start ends them all."""

    def __post_init__(self) -> None:
        if self.sample_every_s and not 1 <= self.sample_every_s <= 600:
            raise ConfigError(f"--sample-every is 0, or 1 to 600 seconds, not {self.sample_every_s:g}")
        for name in self.names:
            if not HOST_NAME.fullmatch(name):
                raise ConfigError(f"--name {name!r} is not a host name; it goes without a scheme and a port")
        if len(self.metrics_urls) > MOST_METRICS_URLS:
            raise ConfigError(f"{len(self.metrics_urls)} addresses of metrics; {MOST_METRICS_URLS} are the most")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigError("--tls-cert and --tls-key go together")
        if not is_loopback(self.host) and (not self.has_tls or isinstance(self.login, Nobody)):
            raise ConfigError(
                f"{self.host} can be reached by others: listening there needs TLS (--tls-cert, --tls-key) and a login "
                "(--auth basic FILE, token FILE, or header NAME behind a proxy); 127.0.0.1 needs neither"
            )
        if self.allow_changes and self.audit_log is None:
            raise ConfigError("--allow-changes needs --audit-log FILE, to which every change is written")

    @property
    def has_tls(self) -> bool:
        return self.tls_certificate is not None


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def may_be_addressed_as(settings: Settings, host_header: str) -> bool:
    """True if a Host header names this console: an IP address, loopback, or a name it was told."""
    return is_addressed_to(host_header, settings.names | {settings.host.lower()})
