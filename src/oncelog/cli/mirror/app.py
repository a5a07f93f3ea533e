"""The group ``oncelog mirror``: without a sub-command it mirrors."""

from __future__ import annotations

from typing import Final

import typer

from oncelog.cli.mirror import offsets, options, verify
from oncelog.cli.mirror.settings import (
    Config,
    Groups,
    MirrorProperties,
    SourceConfig,
    Sources,
    Target,
    TargetConfig,
    Topics,
    engine_settings,
    read_clusters,
)
from oncelog.cli.support.options import AsJson
from oncelog.cli.support.terminal import print_lines

app: Final = typer.Typer(rich_markup_mode=None, add_completion=False, invoke_without_command=True)
app.command("offsets")(offsets.offsets)
app.command("verify")(verify.verify)


@app.callback()
def mirror(
    context: typer.Context,
    sources: Sources = None,
    target: Target = None,
    topics: Topics = None,
    groups: Groups = None,
    naming: options.Naming = None,
    begin: options.Begin = None,
    on_gap: options.OnGap = None,
    read_uncommitted: options.ReadUncommitted = False,
    no_configs: options.NoConfigs = False,
    acls: options.Acls = False,
    delete_topics: options.DeleteTopics = False,
    replication_factor: options.ReplicationFactor = None,
    commit_interval_ms: options.CommitInterval = None,
    refresh_interval_ms: options.RefreshInterval = None,
    groups_interval_ms: options.GroupsInterval = None,
    instance: options.Instance = None,
    until_caught_up: options.UntilCaughtUp = False,
    interval_s: options.Interval = 5,
    prometheus: options.Prometheus = None,
    prometheus_address: options.PrometheusAddress = "127.0.0.1",
    quiet: options.Quiet = False,
    source_config: SourceConfig = None,
    target_config: TargetConfig = None,
    config: Config = None,
    properties: MirrorProperties = None,
    as_json: AsJson = False,
) -> None:
    """Copy topics and groups of clusters into another cluster, each record exactly once.

    Any Kafka clusters. Records and the positions they came from are one transaction at the target, so a mirror may be
    killed and started again, or run several times to share the work. Ctrl-C and SIGTERM end it after the open
    transaction. The options are the same for all instances of a mirror.

    \b
    Examples:
      oncelog mirror --source a=kafka-a:9092 --target kafka-c:9092 --topics 'orders|flights.*' --groups '.*'
      oncelog mirror --source a=kafka-a:9092 --source b=kafka-b:9092 --target c=kafka-c:9092 --topics '.*'
      oncelog mirror --config mirror.properties --prometheus 9465
      oncelog mirror --source a=kafka-a:9092 --target kafka-c:9092 --topics orders --exit --json
    """
    given = {key: value for key, value in locals().items() if key in _OF_ENGINES}
    if context.invoked_subcommand is not None:
        return
    if sources is None and config is None and not properties:
        print_lines(context.get_help())
        raise typer.Exit(2)
    from oncelog.cli.mirror.run import Report, run

    clusters = read_clusters(sources, target, source_config, target_config, config, properties)
    report = Report(interval_s, as_json, quiet, None if prometheus is None else (prometheus_address, prometheus))
    run(engine_settings(clusters, given), report, until_caught_up=until_caught_up)


_OF_ENGINES: Final = {
    "topics",
    "groups",
    "naming",
    "begin",
    "on_gap",
    "read_uncommitted",
    "no_configs",
    "acls",
    "delete_topics",
    "replication_factor",
    "commit_interval_ms",
    "refresh_interval_ms",
    "groups_interval_ms",
    "instance",
}
"""Parameters that are settings of engines."""
