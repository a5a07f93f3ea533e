"""The group ``oncelog mirror``: without a sub-command it mirrors."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from oncelog.cli.mirror import copies
from oncelog.cli.mirror.settings import (
    OPTIONS,
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

Naming = Annotated[
    str | None, typer.Option("--naming", metavar="prefix|identity", help="a.orders, or orders as it is.")
]
Begin = Annotated[
    str | None,
    typer.Option("--begin", metavar="earliest|latest", help="Where partitions begin that were never copied."),
]
OnGap = Annotated[
    str | None,
    typer.Option("--on-gap", metavar="fail|record", help="If records are gone at the source before they are copied."),
]
ReadUncommitted = Annotated[
    bool, typer.Option("--read-uncommitted", help="Copy transactions before they are decided, aborted ones too.")
]
NoConfigs = Annotated[bool, typer.Option("--no-configs", help="Leave the topics' configurations alone.")]
Acls = Annotated[bool, typer.Option("--acls", help="Copy access control lists of topics, but for writing.")]
DeleteTopics = Annotated[
    bool, typer.Option("--delete-topics", help="Delete copies whose topic was deleted at the source.")
]
ReplicationFactor = Annotated[
    int | None, typer.Option("--replication-factor", metavar="N", min=1, help="Of topics made at the target.")
]
CommitInterval = Annotated[
    int | None, typer.Option("--commit-interval-ms", metavar="MS", min=1, help="Length of a transaction (500).")
]
RefreshInterval = Annotated[
    int | None, typer.Option("--refresh-interval-ms", metavar="MS", min=1, help="Between looks for topics (5000).")
]
GroupsInterval = Annotated[
    int | None, typer.Option("--groups-interval-ms", metavar="MS", min=1, help="Between looks at groups (3000).")
]
Instance = Annotated[
    str | None,
    typer.Option("--instance", metavar="NAME", help="Of several that share the work. Default: by host and number."),
]
UntilCaughtUp = Annotated[bool, typer.Option("--exit", "-e", help="End when what is there at the beginning is copied.")]
Interval = Annotated[float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="Between two reports.")]
Prometheus = Annotated[
    int | None, typer.Option("--prometheus", metavar="PORT", min=0, max=65535, help="Serve metrics.")
]
PrometheusAddress = Annotated[
    str, typer.Option("--prometheus-address", metavar="HOST", help="Address to serve metrics on.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No reports.")]

app: Final = typer.Typer(rich_markup_mode=None, add_completion=False, invoke_without_command=True)
app.command("offsets")(copies.offsets)
app.command("verify")(copies.verify)


@app.callback()
def mirror(
    context: typer.Context,
    sources: Sources = None,
    target: Target = None,
    topics: Topics = None,
    groups: Groups = None,
    naming: Naming = None,
    begin: Begin = None,
    on_gap: OnGap = None,
    read_uncommitted: ReadUncommitted = False,
    no_configs: NoConfigs = False,
    acls: Acls = False,
    delete_topics: DeleteTopics = False,
    replication_factor: ReplicationFactor = None,
    commit_interval_ms: CommitInterval = None,
    refresh_interval_ms: RefreshInterval = None,
    groups_interval_ms: GroupsInterval = None,
    instance: Instance = None,
    until_caught_up: UntilCaughtUp = False,
    interval_s: Interval = 5,
    prometheus: Prometheus = None,
    prometheus_address: PrometheusAddress = "127.0.0.1",
    quiet: Quiet = False,
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
    given = {key: value for key, value in locals().items() if key.replace("_", "-") in OPTIONS}
    if context.invoked_subcommand is not None:
        return
    if sources is None and config is None and not properties:
        print_lines(context.get_help())
        raise typer.Exit(2)
    from oncelog.cli.mirror.run import Report, run

    clusters = read_clusters(sources, target, source_config, target_config, config, properties)
    report = Report(interval_s, as_json, quiet, None if prometheus is None else (prometheus_address, prometheus))
    run(engine_settings(clusters, given), report, until_caught_up=until_caught_up)
