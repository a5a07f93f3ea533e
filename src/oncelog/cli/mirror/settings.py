"""The settings of a mirror out of options and ``--config``: which clusters, how to reach them, what to copy.

Keys of ``--config FILE`` and ``-X``, which wins: ``source.ALIAS.KEY`` and ``target.KEY`` with a client's setting by its
Java name (``bootstrap.servers``, ``security.protocol``, …), ``target.alias``, and options without their dashes
(``topics``, ``on-gap``, …). The command line wins over the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from oncelog.cli.support.options import client_settings, key_values
from oncelog.client.errors import ConfigError

if TYPE_CHECKING:
    from oncelog.mirror.settings import Cluster, MirrorSettings


@dataclass(frozen=True)
class EndOptions:
    sources: Annotated[
        list[str] | None,
        typer.Option("--source", metavar="ALIAS=HOST:PORT,…", help="A cluster to copy from; may be repeated."),
    ] = None
    target: Annotated[
        str | None, typer.Option("--target", metavar="[ALIAS=]HOST:PORT,…", help="The cluster to copy to.")
    ] = None


@dataclass(frozen=True)
class ConfigOptions:
    source_config: Annotated[
        list[str] | None,
        typer.Option("--source-config", metavar="ALIAS=FILE", help="A properties file for the client of a source."),
    ] = None
    target_config: Annotated[
        Path | None, typer.Option("--target-config", metavar="FILE", help="A properties file for the target's client.")
    ] = None
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings of the mirror; options win over it.")
    ] = None
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property", "-X", metavar="KEY=VALUE", help="source.ALIAS.KEY=… or target.KEY=…; may be repeated."
        ),
    ] = None


Topics = Annotated[
    str | None, typer.Option("--topics", metavar="REGEX", help="Topics of the sources, by their whole names.")
]
Groups = Annotated[
    str | None, typer.Option("--groups", metavar="REGEX", help="Groups of the sources, by their whole names.")
]


@dataclass(frozen=True)
class MirrorMakerOptions:
    """Options of ``oncelog mirror verify`` for copies of MirrorMaker 2."""

    mm2: Annotated[bool, typer.Option("--mm2", help="Verify the offset translation of MirrorMaker 2.")] = False
    groups: Annotated[
        str | None,
        typer.Option(
            "--groups", metavar="REGEX", help="With --mm2: these groups. Default: those that MirrorMaker includes."
        ),
    ] = None
    offset_lag_max: Annotated[
        int, typer.Option("--offset-lag-max", metavar="N", min=0, help="With --mm2: its offset.lag.max.")
    ] = 100
    stale_s: Annotated[
        float,
        typer.Option(
            "--stale-after", metavar="SECONDS", min=0, help="With --mm2: checkpoints should be renewed in this time."
        ),
    ] = 600


@dataclass(frozen=True)
class CopyOptions:
    """The settings of engines, which may be in ``--config`` too."""

    topics: Topics = None
    groups: Groups = None
    naming: Annotated[
        str | None, typer.Option("--naming", metavar="prefix|identity", help="a.orders, or orders as it is.")
    ] = None
    begin: Annotated[
        str | None,
        typer.Option("--begin", metavar="earliest|latest", help="Where partitions begin that were never copied."),
    ] = None
    on_gap: Annotated[
        str | None,
        typer.Option(
            "--on-gap", metavar="fail|record", help="If records are gone at the source before they are copied."
        ),
    ] = None
    read_uncommitted: Annotated[
        bool, typer.Option("--read-uncommitted", help="Copy transactions before they are decided, aborted ones too.")
    ] = False
    no_configs: Annotated[bool, typer.Option("--no-configs", help="Leave the topics' configurations alone.")] = False
    acls: Annotated[bool, typer.Option("--acls", help="Copy access control lists of topics, but for writing.")] = False
    schemas: Annotated[
        bool,
        typer.Option("--schemas", help="Copy schemas, too: from _schemas of the source to _schemas of the target."),
    ] = False
    delete_topics: Annotated[
        bool, typer.Option("--delete-topics", help="Delete copies whose topic was deleted at the source.")
    ] = False
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", metavar="N", min=1, help="Of topics made at the target.")
    ] = None
    commit_interval_ms: Annotated[
        int | None, typer.Option("--commit-interval-ms", metavar="MS", min=1, help="Length of a transaction (500).")
    ] = None
    refresh_interval_ms: Annotated[
        int | None, typer.Option("--refresh-interval-ms", metavar="MS", min=1, help="Between looks for topics (5000).")
    ] = None
    groups_interval_ms: Annotated[
        int | None, typer.Option("--groups-interval-ms", metavar="MS", min=1, help="Between looks at groups (3000).")
    ] = None
    instance: Annotated[
        str | None,
        typer.Option("--instance", metavar="NAME", help="Of several that share the work. Default: by host and number."),
    ] = None


_CLIENT: Final = {
    "client.id": "oncelog-mirror",
    "default.api.timeout.ms": "15000",
    "request.timeout.ms": "15000",
    "retry.backoff.max.ms": "500",
}
OPTIONS: Final = frozenset(option.name.replace("_", "-") for option in fields(CopyOptions))
"""Options that are settings of engines, and may be in ``--config``."""


@dataclass(slots=True)
class Clusters:
    sources: list[Cluster]
    target: Cluster
    options: dict[str, str] = field(default_factory=dict)

    def option(self, name: str, given: str | None) -> str | None:
        return given if given is not None else self.options.get(name)

    def flag(self, name: str, given: bool) -> bool:
        return given or self.options.get(name, "false").lower() == "true"

    def number(self, name: str, given: int | None, default: int) -> int:
        """A number from the command line or the file. Raises ConfigError."""
        text = self.options.get(name)
        if given is not None or text is None:
            return default if given is None else given
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"{name} = {text!r} in --config is not a whole number") from None


def read_clusters(ends: EndOptions, configs: ConfigOptions) -> Clusters:
    """The clusters named by options and files. Raises ConfigError, BadParameter."""
    by_alias: dict[str, dict[str, str]] = {}
    to: dict[str, str] = {}
    options: dict[str, str] = {}
    _sort(client_settings(configs.properties, configs.config), by_alias, to, options)
    for alias, path in key_values(configs.source_config, "--source-config").items():
        by_alias.setdefault(alias, {}).update(client_settings(None, Path(path)))
    to.update(client_settings(None, configs.target_config))
    named = key_values(ends.sources, "--source")
    for alias, servers in named.items():
        by_alias.setdefault(alias, {})["bootstrap.servers"] = servers
    if ends.target is not None:
        alias, equals, servers = ends.target.rpartition("=")
        to["bootstrap.servers"] = servers
        to |= {"alias": alias} if equals else {}
    alias = to.pop("alias", "")
    if not by_alias:
        raise ConfigError("no source: name one with --source ALIAS=HOST:PORT, or source.ALIAS.bootstrap.servers")
    if "bootstrap.servers" not in to:
        raise ConfigError("no target: name it with --target HOST:PORT, or target.bootstrap.servers in --config")
    from_ = [_cluster(alia, by_alias[alia], "--source") for alia in by_alias]
    return Clusters(from_, _cluster(alias, to, "--target"), options)


def engine_settings(clusters: Clusters, given: CopyOptions) -> list[MirrorSettings]:
    """The settings of one engine per source. Raises ConfigError."""
    from oncelog.mirror.settings import Begin, MirrorSettings, Naming, OnGap, choice, compiled

    def text(name: str) -> str | None:
        return clusters.option(name, getattr(given, name.replace("-", "_")))

    def flag(name: str) -> bool:
        return clusters.flag(name, getattr(given, name.replace("-", "_")))

    def number(name: str, default: int) -> int:
        return clusters.number(name, getattr(given, name.replace("-", "_")), default)

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
            sync_schemas=flag("schemas"),
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
    """Sorts the keys of ``--config`` and ``-X`` by their subject. Raises ConfigError for unknown keys."""
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
