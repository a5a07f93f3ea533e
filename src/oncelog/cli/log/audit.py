"""``oncelog audit``: the outcome of every transaction in a cluster's log directories, and contradictions in them."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.cli.log.table_audit import TableOptions, audit_table, tell
from oncelog.cli.support.failures import EXIT_FAILED, complain
from oncelog.cli.support.options import key_values, time_option
from oncelog.cli.support.output import print_json, print_table
from oncelog.cli.support.terminal import print_line

if TYPE_CHECKING:
    from oncelog.spark.audit.audit_context import Limits
    from oncelog.spark.audit.audit_plan import Plan
    from oncelog.spark.audit.model import Finding
    from oncelog.spark.audit.pipeline import AuditResult, Engine

EXIT_FOUND = 2
_LISTED = 50
_WORTH_SPARK = 128 << 20
"""Bytes of log from which on starting Spark pays."""
_PACKAGES = ("numpy", "pyarrow")
"""Packages that read segments, on Spark and in this process."""


@dataclass(frozen=True)
class LimitOptions:
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="TIME", help="Judge lateness by this time, not by the logs' latest."),
    ] = None
    max_timeout_ms: Annotated[
        int, typer.Option("--transaction-max-timeout-ms", min=1, metavar="MS", help="The cluster's setting.")
    ] = 900_000
    id_expiration_ms: Annotated[
        int, typer.Option("--transactional-id-expiration-ms", min=1, metavar="MS", help="The cluster's setting.")
    ] = 604_800_000
    copied_within: Annotated[
        float | None,
        typer.Option(
            "--copied-within",
            min=0,
            metavar="SECONDS",
            help="How far apart the logs were copied: newer data is never reported as missing elsewhere. "
            "0 for one snapshot of all. Default: 300, or 0 if the brokers were shut down.",
        ),
    ] = None
    transaction_partitions: Annotated[
        int | None,
        typer.Option(
            "--transaction-partitions",
            min=1,
            metavar="COUNT",
            help="Partitions of __transaction_state, where no directory says (default 50).",
        ),
    ] = None

    def limits(self) -> Limits:
        """Raises BadParameter."""
        from oncelog.spark.audit.audit_context import Limits

        return Limits(
            self.max_timeout_ms,
            transactional_id_expiration_ms=self.id_expiration_ms,
            now_ms=time_option(self.as_of, "--as-of"),
            skew_ms=None if self.copied_within is None else int(self.copied_within * 1000),
            transaction_partitions=self.transaction_partitions,
        )


@dataclass(frozen=True)
class EngineOptions:
    master: Annotated[str | None, typer.Option("--master", metavar="URL", help="Spark master. Default: local[*].")] = (
        None
    )
    spark_config: Annotated[
        list[str] | None, typer.Option("--spark-config", metavar="KEY=VALUE", help="A setting of Spark; repeatable.")
    ] = None
    spark: Annotated[
        bool | None,
        typer.Option("--spark/--no-spark", help="On Spark, or in this process (default: Spark from 128 MiB on)."),
    ] = None

    def engine(self, size_bytes: int, progress: bool) -> AbstractContextManager[Engine]:
        """The engine for ``size_bytes`` of log: Spark if requested or worth its start. Raises BadParameter."""
        settings = key_values(self.spark_config, "--spark-config")
        on_spark = self.spark
        if on_spark is None:
            on_spark = self.master is not None or bool(settings) or size_bytes >= _WORTH_SPARK
        return _on_spark(self.master, settings, size_bytes, progress) if on_spark else _here(progress)


def audit(
    directories: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[DIR...]", help="Data directories, copies of them, or single partitions' directories."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Also write all transactions and all findings there, as Parquet."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write a page with a timeline, self-contained.")
    ] = None,
    crc: Annotated[bool, typer.Option("--crc/--no-crc", help="Check the checksum of every batch.")] = True,
    fail_on_findings: Annotated[
        bool, typer.Option("--fail-on-findings", help="Exit with 2 if anything was found.")
    ] = False,
    limit_options: LimitOptions = LimitOptions(),
    engine_options: EngineOptions = EngineOptions(),
    table_options: TableOptions = TableOptions(),
    progress: Annotated[
        bool, typer.Option("--progress", help="Print progress on stderr: a JSON object a line, for programs.")
    ] = False,
) -> None:
    """Audit log directories, oncelog's or Apache Kafka's: the fate of every transaction, and what cannot be right.

    Reads segments, indexes, producer snapshots, __transaction_state and __consumer_offsets, a Spark task a segment, and
    writes nothing to them. Several brokers' directories of one cluster make one audit. Finds transactions that are
    torn or hanging, writes after markers, markers without a decision, repeated and missing sequences, offsets committed
    for aborted records, lying index entries, wrong checksums and garbage. Copies need not be of one instant: data
    newer than --copied-within is never reported as missing.

    With --iceberg or --delta it audits a table filled by oncelog load, Kafka Connect's Iceberg sink or Spark: its
    commits and files, with --rows its rows, with --bootstrap-server or DIR the rows against their topics.

    \b
    Examples:
      oncelog audit /var/lib/kafka/data
      oncelog audit broker-1/ broker-2/ broker-3/ --html report.html --to report/
      oncelog audit ./data --no-spark --json --fail-on-findings | jq .findings
      oncelog audit /mnt/logs --master spark://head:7077 --no-crc
      oncelog audit --iceberg shop.orders --catalog prod --bootstrap-server localhost:9092 --json
      oncelog audit --delta s3://lake/flights --rows --fail-on-findings
      oncelog audit --delta ./flights /var/lib/kafka/data
    """
    if table_options.is_given:
        _refuse_outputs(to, html)
        has_findings = audit_table(table_options, directories or [], as_json=as_json, progress_lines=progress)
    else:
        planned = _plan(directories or [], to, engine_options)
        from oncelog.spark.audit.pipeline import audit as run

        limits = limit_options.limits()
        with engine_options.engine(planned.size_bytes, progress) as engine:
            result = run(planned, engine, check_crc=crc, limits=limits, to=to)
        _write_page(result, html)
        _print(result, html, to, as_json)
        has_findings = result.finding_count > 0
    if fail_on_findings and has_findings:
        raise typer.Exit(EXIT_FOUND)


def _plan(directories: list[Path], to: Path | None, options: EngineOptions) -> Plan:
    """Exits if there is nothing to audit. Raises BadParameter."""
    if not directories:
        raise typer.BadParameter(
            "nothing to audit: name log directories, or a table with --iceberg or --delta", param_hint="DIR"
        )
    _check_packages(options.spark)
    from oncelog.spark.audit.directories import NothingToAudit, plan

    _check_place(to, directories)
    try:
        return plan(directories)
    except NothingToAudit as error:
        complain(str(error))
        raise typer.Exit(EXIT_FAILED) from None


def _write_page(result: AuditResult, html: Path | None) -> None:
    if html is not None:
        from oncelog.spark.audit.html import page

        html.write_text(page(result), encoding="utf-8")


def _refuse_outputs(to: Path | None, html: Path | None) -> None:
    if to is not None or html is not None:
        raise typer.BadParameter("the audit of a table has no such output; use --json", param_hint="--to, --html")


def _check_place(to: Path | None, directories: list[Path]) -> None:
    if to is not None and any(to.absolute().is_relative_to(directory.absolute()) for directory in directories):
        raise typer.BadParameter(f"{to} is inside a directory that is audited; choose another place", param_hint="--to")


def _check_packages(on_spark: bool | None) -> None:
    """Exits if a package that reads segments is missing; raises ModuleNotFoundError if ``on_spark`` asks for Spark."""
    for name in _PACKAGES:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if on_spark or error.name != name:
                raise
            complain(
                f"{name} is not installed: an audit with --no-spark needs pip install {' '.join(_PACKAGES)}, one on "
                "Spark pip install 'oncelog[spark]'"
            )
            raise typer.Exit(EXIT_FAILED) from None


@contextlib.contextmanager
def _here(progress: bool) -> Iterator[Engine]:
    from oncelog.spark.audit.engines.local_engine import LocalEngine

    yield LocalEngine(tell) if progress else LocalEngine()


@contextlib.contextmanager
def _on_spark(master: str | None, settings: dict[str, str], size_bytes: int, progress: bool) -> Iterator[Engine]:
    from oncelog.spark.audit.engines.spark_engine import SparkEngine, report_progress
    from oncelog.spark.session.local_session import local_session

    if progress:
        tell("starting Spark", 0, 0)
    elif sys.stderr.isatty():
        print_line("starting Spark", err=True, flush=True)
    with local_session(master=master or "local[*]", config=settings, log=Path("/dev/null")) as session:
        session.sparkContext.setLogLevel("ERROR")
        engine = SparkEngine(session, size_bytes)
        try:
            with report_progress(session.sparkContext, tell) if progress else contextlib.nullcontext():
                yield engine
        finally:
            engine.close()


def _print(result: AuditResult, html: Path | None, to: Path | None, as_json: bool) -> None:
    from oncelog.spark.audit import report

    if as_json:
        print_json(report.as_json(result))
        return
    print_line(report.headline(result))
    for caveat in report.caveats(result):
        print_line(caveat)
    counts = ", ".join(f"{number:,} {fate}" for fate, number in report.count_by_fate(result).items())
    print_line(f"transactions by partition: {counts or 'none'}")
    print_line()
    if not result.finding_count:
        print_line("nothing found that cannot be right")
    for kind, number in result.kinds.items():
        print_line(f"{number:>6,}  {kind:<18} {report.meaning(kind)}")
    if result.findings:
        print_line()
        print_table(
            ("kind", "partition", "offset", "transactional id", "producer", "epoch", "what"),
            map(_row, result.findings[:_LISTED]),
        )
    if result.finding_count > _LISTED:
        print_line(f"… {result.finding_count - _LISTED:,} more; --json lists up to 2,000, --to writes all")
    if result.notes:
        print_line()
        print_line("worth knowing, and not wrong:")
        print_table(("kind", "transactional id", "what"), [_note(note) for note in result.notes[:_LISTED]])
    for written in (path for path in (html, to) if path is not None):
        print_line(f"written: {written}")


def _row(finding: Finding) -> tuple[object, ...]:
    def _or_none(value: int) -> int | None:
        return None if value < 0 else value

    place = f"{finding.topic}-{finding.partition}" if finding.topic else finding.path
    name = _quoted(finding.transactional_id) if finding.transactional_id else None
    return (
        finding.kind,
        place,
        _or_none(finding.offset),
        name,
        _or_none(finding.producer_id),
        _or_none(finding.epoch),
        _quoted(finding.text),
    )


def _note(note: Finding) -> tuple[object, ...]:
    return note.kind, _quoted(note.transactional_id), _quoted(note.text)


def _quoted(text: str) -> str:
    """Text from a log, escaped: it may contain control characters for a terminal."""
    return text if text.isprintable() else json.dumps(text)
