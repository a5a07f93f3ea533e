"""The group ``oncelog mirror``; without a sub-command it runs a mirror."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from oncelog.cli.mirror import copies
from oncelog.cli.mirror.settings import ConfigOptions, CopyOptions, EndOptions, engine_settings, read_clusters
from oncelog.cli.support.option_groups import grouped
from oncelog.cli.support.options import AsJson
from oncelog.cli.support.terminal import print_lines

app: Final = typer.Typer(rich_markup_mode=None, add_completion=False, invoke_without_command=True)
app.command("offsets")(grouped(copies.offsets))
app.command("verify")(grouped(copies.verify))


@app.callback()
@grouped
def mirror(
    context: typer.Context,
    ends: EndOptions = EndOptions(),
    options: CopyOptions = CopyOptions(),
    until_caught_up: Annotated[
        bool, typer.Option("--exit", "-e", help="End once the records present at the start are copied.")
    ] = False,
    interval_s: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="Between two reports.")
    ] = 5,
    prometheus: Annotated[
        int | None, typer.Option("--prometheus", metavar="PORT", min=0, max=65535, help="Serve metrics.")
    ] = None,
    prometheus_address: Annotated[
        str, typer.Option("--prometheus-address", metavar="HOST", help="Address to serve metrics on.")
    ] = "127.0.0.1",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No reports.")] = False,
    configs: ConfigOptions = ConfigOptions(),
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
    if context.invoked_subcommand is not None:
        return
    if ends.sources is None and configs.config is None and not configs.properties:
        print_lines(context.get_help())
        raise typer.Exit(2)
    from oncelog.cli.mirror.run import Report, run

    report = Report(interval_s, as_json, quiet, None if prometheus is None else (prometheus_address, prometheus))
    run(engine_settings(read_clusters(ends, configs), options), report, until_caught_up=until_caught_up)
