"""``oncelog compact``: merges a table's small files into larger ones."""

from __future__ import annotations

from typing import Annotated

import typer

from oncelog.base.text import counted
from oncelog.cli.support.options import AsJson
from oncelog.cli.support.output import print_json
from oncelog.cli.support.terminal import print_line
from oncelog.cli.table.options import PlaceOptions


def compact(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A table that 'oncelog load' made, as its --to.")],
    target_mib: Annotated[
        int, typer.Option("--target-mib", min=1, metavar="N", help="Merge neighbouring files up to this size.")
    ] = 128,
    place: PlaceOptions = PlaceOptions(),
    as_json: AsJson = False,
) -> None:
    """Merge a table's small files. Readers always see every row once: in the old files or in the new ones.

    Needs no cluster and no Java. A query that has listed the old files and not opened them yet fails and is repeated.
    Refused while a load or a stream holds the table; they compact by themselves (--compact, --compact-every).

    \b
    Examples:
      oncelog compact ./flights-table
      oncelog compact ./flights-table --json
      oncelog compact delta:s3://lake/flights
    """
    from oncelog.spark.targets.entry import compact as run

    report = run(table, target_mib * 1024 * 1024, **place.as_arguments())
    if as_json:
        print_json(report)
    elif not report.files_before:
        print_line(f"nothing to do; no two neighbours in {table} fit into {target_mib} MiB")
    else:
        files = f"{counted(report.files_before, 'file')} → {report.files_after}"
        sizes = f"{report.bytes_before / 1e6:,.1f} MB → {report.bytes_after / 1e6:,.1f} MB"
        # A format's own compaction does not say more than the number of files.
        more = f", {counted(report.rows, 'row')}, {sizes}" if report.rows else ""
        print_line(f"{files}{more}, {report.seconds:.1f} s")
