"""``oncelog compact``: larger files instead of small ones, for readers in one step. Parsing and printing only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oncelog.cli.options import AsJson
from oncelog.cli.output import print_json


def compact(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A table that 'oncelog load' made.")],
    target_mib: Annotated[
        int, typer.Option("--target-mib", min=1, metavar="N", help="Merge neighbours up to this size.")
    ] = 128,
    as_json: AsJson = False,
) -> None:
    """Merge a table's small files. Whoever reads meanwhile sees every row once: the old files or the new ones.

    Needs no cluster and no Java. A query that has listed the old files and not opened them yet fails and is repeated.
    Refused while a load or a stream holds the table; they compact by themselves (--compact, --compact-every).

    \b
    Examples:
      oncelog compact ./flights-table
      oncelog compact ./flights-table --json
    """
    from oncelog.spark.table.compact import compact as run

    report = run(directory, target_mib * 1024 * 1024)
    if as_json:
        print_json(report)
    elif not report.files_before:
        print(f"nothing to do; no two neighbours in {directory} fit into {target_mib} MiB")
    else:
        sizes = f"{report.bytes_before / 1e6:,.1f} MB → {report.bytes_after / 1e6:,.1f} MB"
        print(
            f"{report.files_before} files → {report.files_after}, {report.rows:,} rows, {sizes}, {report.seconds:.1f} s"
        )
