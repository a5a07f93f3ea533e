"""``oncelog mirror offsets`` and ``verify``: what a mirror has copied of group offsets and records."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.base.text import counted
from oncelog.cli.mirror.settings import ConfigOptions, EndOptions, Groups, MirrorMakerOptions, Topics, read_clusters
from oncelog.cli.support.options import AsJson
from oncelog.cli.support.output import print_json_line, print_rows, print_table, progress
from oncelog.cli.support.terminal import print_line

if TYPE_CHECKING:
    from oncelog.mirror.progress import GroupOffsetRow
    from oncelog.mirror.verification import RangeRow


def offsets(
    ends: EndOptions = EndOptions(),
    groups: Groups = None,
    back: Annotated[
        bool, typer.Option("--back", help="From the target to the source, for groups that return.")
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Commit the offsets shown, for groups without members.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --apply: also where the group has gone on by itself.")
    ] = False,
    configs: ConfigOptions = ConfigOptions(),
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

    clusters = read_clusters(ends, configs)
    pattern = compiled(clusters.option("groups", groups) or ".*", "--groups")
    rows = []
    for source in clusters.sources:
        rows += asyncio.run(translate(source, clusters.target, pattern, back=back, apply=apply, force=force))
    columns = ("group", "from", "partition", "offset", "to", "translated", "there now", "state")
    print_rows(columns, map(_offset_cells, rows), rows, as_json=as_json)


def _offset_cells(row: GroupOffsetRow) -> tuple[object, ...]:
    here = (row.group, row.topic, row.partition, row.source_offset)
    return (*here, row.target_topic, row.translated, row.target_offset, row.state.value)


def verify(
    ends: EndOptions = EndOptions(),
    topics: Topics = None,
    range_records: Annotated[
        int, typer.Option("--range", metavar="RECORDS", min=1, help="Records that are compared at a time.")
    ] = 100_000,
    mirror_maker: MirrorMakerOptions = MirrorMakerOptions(),
    configs: ConfigOptions = ConfigOptions(),
    as_json: AsJson = False,
) -> None:
    """Compare copies with their source: every record's key, value, headers and time, by ranges.

    It reads both sides, read committed, from where both still have the records to where the mirror is. A range is
    right if counts and checksums agree; of one that is not, the first offset that differs is named. Exit code 1 if
    something differs. Where topics are compacted, records that only one side still has are not compared.

    With --mm2 the mirror is MirrorMaker 2: its offset syncs and checkpoints are compared with the records of both
    clusters. Tells which groups would lose records or read them twice if they moved over now. Exit code 1 after a
    finding.

    \b
    Examples:
      oncelog mirror verify --source a=kafka-a:9092 --target kafka-c:9092
      oncelog mirror verify --config mirror.properties --topics orders --json
      oncelog mirror verify --mm2 --source a=kafka-a:9092 --target c=kafka-c:9092
      oncelog mirror verify --mm2 --source a=kafka-a:9092 --target c=kafka-c:9092 --groups billing --json
    """
    if mirror_maker.mm2:
        from oncelog.cli.mirror.mirror_maker import verify_translation

        verify_translation(read_clusters(ends, configs), topics, range_records, mirror_maker, as_json=as_json)
        return
    from oncelog.mirror.settings import compiled
    from oncelog.mirror.verification import verify_copies

    clusters = read_clusters(ends, configs)
    pattern = compiled(clusters.option("topics", topics) or ".*", "--topics")
    rows: list[RangeRow] = []

    async def compare() -> None:
        compared = 0
        with progress(None if as_json else "records compared") as report:
            for source in clusters.sources:
                async for row in verify_copies(source, clusters.target, pattern, range_records):
                    rows.append(row)
                    compared += row.source_records
                    report(compared, None)
                    if as_json:
                        print_json_line(row)

    asyncio.run(compare())
    wrong = [row for row in rows if not row.is_right]
    if not as_json:
        columns = ("source", "topic", "partition", "from", "to", "target", "from", "to", "records", "there", "checksum")
        print_table(columns, [_range_cells(row) for row in rows])
        compared = counted(sum(row.source_records for row in rows), "record")
        print_line(f"{compared} compared, {len(wrong)} of {counted(len(rows), 'range')} differ")
    if wrong:
        raise typer.Exit(1)


def _range_cells(row: RangeRow) -> tuple[object, ...]:
    here = (row.source, row.topic, row.partition, row.source_first, row.source_end)
    return (*here, row.target, row.target_first, row.target_end, row.source_records, row.target_records, row.verdict)
