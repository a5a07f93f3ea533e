"""``oncelog audit --iceberg TABLE`` and ``--delta TABLE``."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from oncelog.cli.support.named_cluster import BOOTSTRAP_NAMES
from oncelog.cli.support.options import ClusterOptions, CommandConfig, Properties, storage_options
from oncelog.cli.support.output import print_json, print_table
from oncelog.cli.support.output import progress as progress_bar
from oncelog.cli.support.terminal import print_line

if TYPE_CHECKING:
    from oncelog.spark.table_audit.audit import TableAudit, Topics
    from oncelog.spark.table_audit.model import History, Place

_LISTED: Final = 50


@dataclass(frozen=True)
class TableOptions:
    iceberg: Annotated[
        str | None,
        typer.Option(
            "--iceberg",
            metavar="TABLE",
            help="Audit an Iceberg table: NAMESPACE.TABLE with --catalog, a directory, or a *.metadata.json.",
        ),
    ] = None
    delta: Annotated[
        str | None, typer.Option("--delta", metavar="TABLE", help="Audit a Delta table: a directory or s3://….")
    ] = None
    rows: Annotated[bool, typer.Option("--rows", help="Of a table: read the rows' offsets, not only metadata.")] = False
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="TOPIC,PARTITION,OFFSET",
            help="Of a table: the columns with each row's place. Default: topic,partition,offset or _kafka_metadata's.",
        ),
    ] = None
    bootstrap: Annotated[
        str | None,
        typer.Option(
            *BOOTSTRAP_NAMES,
            metavar="HOST:PORT,…",
            help="Of a table: compare its rows with the topics of this cluster.",
        ),
    ] = None
    catalog: Annotated[
        str | None,
        typer.Option("--catalog", metavar="NAME", help="The catalog of --iceberg, of pyiceberg's configuration."),
    ] = None
    storage_option: Annotated[
        list[str] | None,
        typer.Option(
            "--storage-option", metavar="KEY=VALUE", help="For delta-rs, or pyiceberg's catalog and files; repeatable."
        ),
    ] = None
    properties: Properties = None
    command_config: CommandConfig = None

    @property
    def is_given(self) -> bool:
        return self.iceberg is not None or self.delta is not None

    def open_table(self) -> tuple[History, History | None]:
        """The table, and its quarantine if it has one. Raises BadParameter, TableError, OptionError."""
        from oncelog.spark.session.errors import SparkSourceError

        options, columns = storage_options(self.storage_option), _place(self.columns)
        name = self.iceberg or self.delta or ""
        quarantine = name + ("_quarantine" if self.catalog is not None else "-quarantine")
        table = _open(self.iceberg is not None, name, self.catalog, options, columns)
        with suppress(SparkSourceError):
            return table, _open(self.iceberg is not None, quarantine, self.catalog, options, None)
        return table, None

    @contextlib.contextmanager
    def open_topics(self, directories: list[Path]) -> Iterator[Topics]:
        """Raises BadParameter."""
        from oncelog.spark.audit.directories import NothingToAudit, plan
        from oncelog.spark.table_audit.audit import Topics

        if self.bootstrap is not None and directories:
            raise typer.BadParameter("compare with a cluster or with directories, not with both", param_hint="DIR")
        if directories:
            try:
                yield Topics(plan=plan(directories))
            except NothingToAudit as error:
                raise typer.BadParameter(str(error), param_hint="DIR") from None
        elif self.bootstrap is not None:
            with ClusterOptions(self.bootstrap, self.properties, self.command_config).open_client() as client:
                yield Topics(client=client)
        else:
            yield Topics()


def _open(is_iceberg: bool, name: str, catalog: str | None, options: dict[str, str], columns: Place | None) -> History:
    if is_iceberg:
        from oncelog.spark.table_audit.iceberg_history import IcebergHistory, open_iceberg

        return IcebergHistory(*open_iceberg(name, catalog, options), columns)
    from oncelog.spark.table_audit.delta_history import open_delta

    return open_delta(name, options, columns)


def _place(text: str | None) -> Place | None:
    from oncelog.spark.table_audit.model import Place

    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if len(names) != 3 or not all(names):
        raise typer.BadParameter(
            f"{text!r} is not TOPIC,PARTITION,OFFSET: three names of columns", param_hint="--columns"
        )
    return Place(*names)


def audit_table(options: TableOptions, directories: list[Path], *, as_json: bool, progress_lines: bool) -> bool:
    """Audit and print; True after a finding. Raises BadParameter, TableError, OptionError, ClientError."""
    from oncelog.spark.table_audit import report
    from oncelog.spark.table_audit.audit import audit_table as run

    if options.iceberg is not None and options.delta is not None:
        raise typer.BadParameter("one audit reads one table: give one of them", param_hint="--iceberg, --delta")
    table, quarantine = options.open_table()
    with options.open_topics(directories) as topics, _progress(progress_lines) as report_progress:
        result = run(
            table, read_all_rows=options.rows, topics=topics, quarantine=quarantine, report_progress=report_progress
        )
    if as_json:
        print_json(report.as_json(result))
    else:
        _print(result)
    return bool(result.findings.counts)


@contextlib.contextmanager
def _progress(lines: bool) -> Iterator[Callable[[str, int, int], None]]:
    if lines:
        yield tell
        return
    with progress_bar("auditing") as bar:
        yield lambda step, done, total: bar(done, total or None)


def tell(step: str, done: int, total: int) -> None:
    """Prints a line of --progress."""
    print_line(json.dumps({"step": step, "done": done, "total": total}), err=True, flush=True)


def _print(result: TableAudit) -> None:
    from oncelog.spark.table_audit import report
    from oncelog.spark.table_audit.model import KINDS

    print_line(report.headline(result))
    for caveat in result.caveats:
        print_line(caveat)
    if result.partitions:
        columns = ("partition", "rows", "first offset", "last offset", "offsets without row", "committed records")
        print_table(columns, [(f"{row.topic}-{row.partition}", *_numbers(row)) for row in result.partitions])
    print_line()
    counts = report.kinds(result)
    if not counts:
        print_line("nothing found that cannot be right")
    for kind, number in counts.items():
        print_line(f"{number:>6,}  {kind:<18} {KINDS[kind]}")
    listed = result.findings.worst_first()
    for finding in listed[:_LISTED]:
        print_line(f"{finding.kind}: {finding.text}")
    total = sum(counts.values())
    if total > _LISTED:
        print_line(f"… {total - _LISTED:,} more; --json lists up to 1,000 of each kind")


def _numbers(row: object) -> tuple[object, ...]:
    names = ("rows", "first_offset", "last_offset", "offsets_without_row", "committed_records")
    return tuple(getattr(row, name) for name in names)
