"""The settings of a mirror out of options and ``--config``: which clusters, how to reach them, what to copy.

Keys of ``--config FILE`` and of ``-X``: ``source.ALIAS.KEY`` and ``target.KEY`` with a client's setting by its Java
name (``bootstrap.servers``, ``security.protocol``, …), ``target.alias``, and an option by its name without dashes in
front (``topics``, ``on-gap``, …). What is given on the command line wins, ``-X`` over the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from oncelog.cli.support.options import client_settings, key_values
from oncelog.client.errors import ConfigError

if TYPE_CHECKING:
    from oncelog.mirror.settings import Cluster, MirrorSettings

Sources = Annotated[
    list[str] | None,
    typer.Option("--source", metavar="ALIAS=HOST:PORT,…", help="A cluster to copy from; may be repeated."),
]
Target = Annotated[str | None, typer.Option("--target", metavar="[ALIAS=]HOST:PORT,…", help="The cluster to copy to.")]
Topics = Annotated[
    str | None, typer.Option("--topics", metavar="REGEX", help="Topics of the sources, by their whole names.")
]
Groups = Annotated[
    str | None, typer.Option("--groups", metavar="REGEX", help="Groups of the sources, by their whole names.")
]
SourceConfig = Annotated[
    list[str] | None,
    typer.Option("--source-config", metavar="ALIAS=FILE", help="A properties file for the client of a source."),
]
TargetConfig = Annotated[
    Path | None, typer.Option("--target-config", metavar="FILE", help="A properties file for the target's client.")
]
Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings of the mirror; options win over it.")
]
MirrorProperties = Annotated[
    list[str] | None,
    typer.Option("--property", "-X", metavar="KEY=VALUE", help="source.ALIAS.KEY=… or target.KEY=…; may be repeated."),
]
_CLIENT: Final = {
    "client.id": "oncelog-mirror",
    "default.api.timeout.ms": "15000",
    "request.timeout.ms": "15000",
    "retry.backoff.max.ms": "500",
}
OPTIONS: Final = frozenset(
    {
        *("topics", "groups", "naming", "begin", "on-gap", "instance", "read-uncommitted", "no-configs", "acls"),
        *("delete-topics", "replication-factor", "commit-interval-ms", "refresh-interval-ms", "groups-interval-ms"),
    }
)
"""Options that are settings of engines, and may be in ``--config``."""


@dataclass(slots=True)
class Clusters:
    """The clusters of a mirror, and the options that ``--config`` gave."""

    sources: list[Cluster]
    target: Cluster
    options: dict[str, str] = field(default_factory=dict)

    def option(self, name: str, given: str | None) -> str | None:
        """The value of an option: as given, else as in the file."""
        return given if given is not None else self.options.get(name)

    def flag(self, name: str, given: bool) -> bool:
        """True if a flag is given, or true in the file."""
        return given or self.options.get(name, "false").lower() == "true"

    def number(self, name: str, given: int | None, default: int) -> int:
        """A number: as given, else as in the file, else ``default``. Raises ConfigError."""
        text = self.options.get(name)
        if given is not None or text is None:
            return default if given is None else given
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"{name} = {text!r} in --config is not a whole number") from None


def read_clusters(
    sources: list[str] | None,
    target: str | None,
    source_configs: list[str] | None,
    target_config: Path | None,
    config: Path | None,
    properties: list[str] | None,
) -> Clusters:
    """The clusters that options and files name. Raises ConfigError, BadParameter."""
    by_alias: dict[str, dict[str, str]] = {}
    to: dict[str, str] = {}
    options: dict[str, str] = {}
    _sort(client_settings(properties, config), by_alias, to, options)
    for alias, path in key_values(source_configs, "--source-config").items():
        by_alias.setdefault(alias, {}).update(client_settings(None, Path(path)))
    if target_config is not None:
        to.update(client_settings(None, target_config))
    named = key_values(sources, "--source")
    for alias, servers in named.items():
        by_alias.setdefault(alias, {})["bootstrap.servers"] = servers
    if target is not None:
        alias, equals, servers = target.rpartition("=")
        to["bootstrap.servers"] = servers
        to |= {"alias": alias} if equals else {}
    alias = to.pop("alias", "")
    if not by_alias:
        raise ConfigError("no source: name one with --source ALIAS=HOST:PORT, or source.ALIAS.bootstrap.servers")
    if "bootstrap.servers" not in to:
        raise ConfigError("no target: name it with --target HOST:PORT, or target.bootstrap.servers in --config")
    from_ = [_cluster(one, by_alias[one], "--source") for one in by_alias]
    return Clusters(from_, _cluster(alias, to, "--target"), options)


def engine_settings(clusters: Clusters, given: Mapping[str, Any]) -> list[MirrorSettings]:
    """The settings of an engine for each source, of options by their parameters' names. Raises ConfigError."""
    from oncelog.mirror.settings import Begin, MirrorSettings, Naming, OnGap, choice, compiled

    def text(name: str) -> str | None:
        return clusters.option(name, given[name.replace("-", "_")])

    def flag(name: str) -> bool:
        return clusters.flag(name, given[name.replace("-", "_")])

    def number(name: str, default: int) -> int:
        return clusters.number(name, given[name.replace("-", "_")], default)

    topics, groups = text("topics"), text("groups")
    if topics is None:
        raise ConfigError("no topics: say which with --topics REGEX ('.*' for all)")
    return [
        MirrorSettings(
            source=source,
            target=clusters.target,
            topics=compiled(topics, "--topics"),
            groups=None if groups is None else compiled(groups, "--groups"),
            naming=choice(Naming, text("naming"), Naming.prefix, "--naming"),
            begin=choice(Begin, text("begin"), Begin.earliest, "--begin"),
            on_gap=choice(OnGap, text("on-gap"), OnGap.fail, "--on-gap"),
            read_committed=not flag("read-uncommitted"),
            instance=text("instance") or "",
            sync_configs=not flag("no-configs"),
            sync_acls=flag("acls"),
            delete_topics=flag("delete-topics"),
            replication_factor=number("replication-factor", -1),
            commit_interval_ms=number("commit-interval-ms", 500),
            refresh_interval_ms=number("refresh-interval-ms", 5000),
            groups_interval_ms=number("groups-interval-ms", 3000),
        )
        for source in clusters.sources
    ]


def _sort(
    given: Mapping[str, str], by_alias: dict[str, dict[str, str]], to: dict[str, str], options: dict[str, str]
) -> None:
    """Sort the keys of ``--config`` and ``-X`` by what they are about. Raises ConfigError for others."""
    for key, value in given.items():
        kind, _, rest = key.partition(".")
        alias, dot, setting = rest.partition(".")
        name = key.replace(".", "-")
        if kind == "source" and dot:
            by_alias.setdefault(alias, {})[setting] = value
        elif kind == "target" and rest:
            to[rest] = value
        elif name in OPTIONS:
            options[name] = value
        else:
            raise ConfigError(
                f"{key!r} is not a setting of a mirror; the settings are source.ALIAS.KEY, target.KEY, "
                f"{', '.join(sorted(OPTIONS))}"
            )


def _cluster(alias: str, settings: dict[str, str], option: str) -> Cluster:
    from oncelog.client.config import ClientConfig, parse_addresses
    from oncelog.mirror.settings import Cluster

    servers = settings.pop("bootstrap.servers", "")
    if not servers:
        raise ConfigError(f"{option} {alias or 'of the mirror'}: bootstrap.servers is missing")
    parse_addresses(servers)
    return Cluster(alias, servers, ClientConfig.from_properties(_CLIENT | settings))
