"""The clusters of ``oncelog console``: ``--cluster``, ``--cluster-config`` and the ``--metrics-url`` of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oncelog.cli.support.named_cluster import cluster_options
from oncelog.cli.support.properties_file import PropertiesError, read_properties_file
from oncelog.client.addresses import parse_addresses
from oncelog.client.errors import ConfigError
from oncelog.console.settings import NamedCluster


def clusters_of(
    clusters: Sequence[str], configs: Sequence[str], metrics_urls: Sequence[str]
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
    return tuple(_cluster(name, servers, files.get(name), urls.get(name, [])) for name, servers in named)


def _pair(option: str, text: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise ConfigError(f"{option} {text!r} is not {form}")
    return name, value


def _check_name(option: str, name: str, named: Sequence[tuple[str, str]]) -> None:
    names = [cluster for cluster, _ in named]
    if name not in names:
        raise ConfigError(f"{option} {name}=…: no --cluster has this name; there are {', '.join(names) or 'none'}")


def _cluster(name: str, servers: str, file: Path | None, urls: Sequence[str]) -> NamedCluster:
    try:
        parse_addresses(servers)
        settings = {} if file is None else read_properties_file(file)
    except ConfigError as error:
        raise ConfigError(f"--cluster {name}={servers}: {error}") from None
    except PropertiesError as error:
        raise ConfigError(f"--cluster-config {name}={file}: {error}") from None
    # --cluster names the brokers; a file that several tools share may name others.
    settings.pop("bootstrap.servers", None)
    options = cluster_options(servers, command_config=None if file is None else file.absolute())
    return NamedCluster(name, servers, settings, options, tuple(urls))
