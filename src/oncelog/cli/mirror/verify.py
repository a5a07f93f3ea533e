"""``oncelog mirror verify``: source and target compared by counts and checksums."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.base.text import counted
from oncelog.cli.mirror.settings import (
    Config,
    MirrorProperties,
    SourceConfig,
    Sources,
    Target,
    TargetConfig,
    Topics,
    read_clusters,
)
from oncelog.cli.support.options import AsJson
from oncelog.cli.support.output import print_json_line, print_table, progress
from oncelog.cli.support.terminal import print_line

if TYPE_CHECKING:
    from oncelog.mirror.verification import RangeRow


def verify(
    sources: Sources = None,
    target: Target = None,
    topics: Topics = None,
    range_records: Annotated[
        int, typer.Option("--range", metavar="RECORDS", min=1, help="Records that are compared at a time.")
    ] = 100_000,
    source_config: SourceConfig = None,
    target_config: TargetConfig = None,
    config: Config = None,
    properties: MirrorProperties = None,
    as_json: AsJson = False,
) -> None:
    """Compare copies with their source: every record's key, value, headers and time, by ranges.

    It reads both sides, read committed, from where both still have the records to where the mirror is. A range is
    right if counts and checksums agree; of one that is not, the first offset that differs is named. Exit code 1 if
    something differs. Where topics are compacted, records that only one side still has are not compared.

    \b
    Examples:
      oncelog mirror verify --source a=kafka-a:9092 --target kafka-c:9092
      oncelog mirror verify --config mirror.properties --topics orders --json
    """
    from oncelog.mirror.settings import compiled
    from oncelog.mirror.verification import verify_copies

    clusters = read_clusters(sources, target, source_config, target_config, config, properties)
    wanted = compiled(clusters.option("topics", topics) or ".*", "--topics")
    rows: list[RangeRow] = []

    async def compare() -> None:
        compared = 0
        with progress(None if as_json else "records compared") as report:
            for source in clusters.sources:
                async for row in verify_copies(source, clusters.target, wanted, range_records):
                    rows.append(row)
                    compared += row.source_records
                    report(compared, None)
                    if as_json:
                        print_json_line(row)

    asyncio.run(compare())
    wrong = [row for row in rows if not row.is_right]
    if not as_json:
        columns = ("source", "topic", "partition", "from", "to", "target", "from", "to", "records", "there", "checksum")
        print_table(columns, [_cells(row) for row in rows])
        compared = counted(sum(row.source_records for row in rows), "record")
        print_line(f"{compared} compared, {len(wrong)} of {counted(len(rows), 'range')} differ")
    if wrong:
        raise typer.Exit(1)


def _cells(row: RangeRow) -> tuple[object, ...]:
    here = (row.source, row.topic, row.partition, row.source_first, row.source_end)
    return (*here, row.target, row.target_first, row.target_end, row.source_records, row.target_records, row.verdict)
