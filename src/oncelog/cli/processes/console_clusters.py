"""The clusters of ``oncelog console``: ``--cluster``, ``--cluster-config`` and the ``--metrics-url`` of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oncelog.cli.support.named_cluster import cluster_options
from oncelog.cli.support.properties_file import PropertiesError, read_properties_file
from oncelog.client.addresses import parse_addresses
from oncelog.client.errors import ConfigError
from oncelog.console.settings import NamedCluster
from oncelog.schemas.client.settings import PREFIX as REGISTRY_PREFIX
from oncelog.schemas.client.settings import parse_settings

_URL = f"{REGISTRY_PREFIX}url"


def clusters_of(
    clusters: Sequence[str], configs: Sequence[str], metrics_urls: Sequence[str], registries: Sequence[str] = ()
) -> tuple[NamedCluster, ...]:
    """The clusters in the order given. Raises ConfigError."""
    named = [_pair("--cluster", text, "NAME=HOST:PORT[,HOST:PORT…]") for text in clusters]
    files: dict[str, Path] = {}
    for text in configs:
        name, file = _pair("--cluster-config", text, "NAME=FILE")
        _check_name("--cluster-config", name, named)
        files[name] = Path(file)
    urls: dict[str, list[str]] = {}
    for text in metrics_urls:
        name, url = _pair("--metrics-url", text, "NAME=URL beside --cluster")
        _check_name("--metrics-url", name, named)
        urls.setdefault(name, []).append(url)
    registry_urls: dict[str, str] = {}
    for text in registries:
        name, url = _pair("--registry", text, "NAME=URL beside --cluster")
        _check_name("--registry", name, named)
        registry_urls[name] = f"{registry_urls[name]},{url}" if name in registry_urls else url
    return tuple(
        _cluster(name, servers, files.get(name), urls.get(name, []), registry_urls.get(name, ""))
        for name, servers in named
    )


def _pair(option: str, text: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise ConfigError(f"{option} {text!r} is not {form}")
    return name, value


def _check_name(option: str, name: str, named: Sequence[tuple[str, str]]) -> None:
    names = [cluster for cluster, _ in named]
    if name not in names:
        raise ConfigError(f"{option} {name}=…: no --cluster has this name; there are {', '.join(names) or 'none'}")


def _cluster(name: str, servers: str, file: Path | None, urls: Sequence[str], registry_url: str) -> NamedCluster:
    try:
        parse_addresses(servers)
        settings = {} if file is None else read_properties_file(file)
    except ConfigError as error:
        raise ConfigError(f"--cluster {name}={servers}: {error}") from None
    except PropertiesError as error:
        raise ConfigError(f"--cluster-config {name}={file}: {error}") from None
    # --cluster names the brokers; a file that several tools share may name others.
    settings.pop("bootstrap.servers", None)
    of_registry = {key: settings.pop(key) for key in list(settings) if key.startswith(REGISTRY_PREFIX)}
    registry = parse_settings(registry_url, of_registry) if registry_url or of_registry.get(_URL) else None
    options = cluster_options(servers, command_config=None if file is None else file.absolute())
    return NamedCluster(name, servers, settings, options, tuple(urls), registry)
