"""``oncelog mirror offsets``: groups' offsets translated, forth and back; shown, and committed if asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.cli.mirror.settings import (
    Config,
    Groups,
    MirrorProperties,
    SourceConfig,
    Sources,
    Target,
    TargetConfig,
    read_clusters,
)
from oncelog.cli.support.options import AsJson
from oncelog.cli.support.output import print_json, print_table

if TYPE_CHECKING:
    from oncelog.mirror.progress import GroupOffsetRow


def offsets(
    sources: Sources = None,
    target: Target = None,
    groups: Groups = None,
    back: Annotated[
        bool, typer.Option("--back", help="From the target to the source, for groups that return.")
    ] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Commit what is shown, for groups without members.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --apply: also where the group has gone on by itself.")
    ] = False,
    source_config: SourceConfig = None,
    target_config: TargetConfig = None,
    config: Config = None,
    properties: MirrorProperties = None,
    as_json: AsJson = False,
) -> None:
    """Show where groups stand at the source and, translated, at the target.

    An offset is translated exactly, by the maps that the mirror writes with the records. With --back the offsets of
    groups at the target, in topics that are copies, are translated to the source: for groups that return to it.

    \b
    Examples:
      oncelog mirror offsets --source a=kafka-a:9092 --target kafka-c:9092 --groups 'billing|audit'
      oncelog mirror offsets --source a=kafka-a:9092 --target kafka-c:9092 --groups billing --apply
      oncelog mirror offsets --source a=kafka-a:9092 --target kafka-c:9092 --groups billing --back --apply
    """
    from oncelog.mirror.settings import compiled
    from oncelog.mirror.translation import translate

    clusters = read_clusters(sources, target, source_config, target_config, config, properties)
    wanted = compiled(clusters.option("groups", groups) or ".*", "--groups")
    rows = []
    for source in clusters.sources:
        rows += asyncio.run(translate(source, clusters.target, wanted, back=back, apply=apply, force=force))
    if as_json:
        print_json(rows)
        return
    columns = ("group", "from", "partition", "offset", "to", "translated", "there now", "state")
    print_table(columns, [_cells(row) for row in rows])


def _cells(row: GroupOffsetRow) -> tuple[object, ...]:
    here = (row.group, row.topic, row.partition, row.source_offset)
    return (*here, row.target_topic, row.translated, row.target_offset, row.state.value)
