"""Running a mirror from the command line: signals, reports, metrics."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from oncelog.base.text import counted
from oncelog.cli.mirror.instance import InstanceName
from oncelog.cli.support.output import print_json_line, print_table
from oncelog.cli.support.terminal import clear_screen, log_to_stderr, print_line
from oncelog.mirror.engine import Engine, run_engines
from oncelog.mirror.errors import MirrorIncomplete
from oncelog.mirror.schema_sync import NewSchemaCopy
from oncelog.mirror.settings import MirrorSettings, Naming
from oncelog.runtime.stop_signals import stop_signals

_SHOWN = 40
_MOST_REFUSALS = 10


class Report(NamedTuple):
    interval_s: float
    as_json: bool
    quiet: bool
    metrics: tuple[str, int] | None


def run(settings: Sequence[MirrorSettings], report: Report, *, until_caught_up: bool) -> None:
    """Runs a mirror until it is done or a signal arrives; the last report has the totals. Raises ClientError."""
    log_to_stderr(logging.INFO, "oncelog: %(message)s")
    with contextlib.ExitStack() as stack:
        if not settings[0].instance:
            target, aliases = settings[0].target.bootstrap_servers, [setting.source.alias for setting in settings]
            name = stack.enter_context(contextlib.closing(InstanceName(target, aliases))).name
            settings = [replace(setting, instance=name) for setting in settings]
        asyncio.run(_run(settings, report, until_caught_up, stack))


async def _run(
    settings: Sequence[MirrorSettings], report: Report, until_caught_up: bool, stack: contextlib.ExitStack
) -> None:
    engines = [Engine(setting, until_caught_up=until_caught_up, schemas=_schema_copy(setting)) for setting in settings]
    if report.metrics is not None:
        from oncelog.cli.mirror.exporter import MirrorCollector
        from oncelog.cli.support.metrics_server import MetricsServer

        address, port = report.metrics
        collector = MirrorCollector([engine.progress for engine in engines])
        server = stack.enter_context(contextlib.closing(MetricsServer(collector, address, port)))
        print_line(f"metrics on http://{address}:{server.port}/metrics", err=True, flush=True)
    incomplete: MirrorIncomplete | None = None
    with _stopped_by_signals(engines):
        reporting = asyncio.create_task(_report(engines, report))
        try:
            await run_engines(engines)
        except MirrorIncomplete as error:
            incomplete = error
        finally:
            reporting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reporting
    if not report.quiet or report.as_json:
        _show(engines, report, final=True)
    if incomplete is not None:
        raise incomplete


def _schema_copy(settings: MirrorSettings) -> NewSchemaCopy | None:
    if not settings.sync_schemas:
        return None
    from oncelog.registry.mirroring import Naming as SchemaNaming
    from oncelog.registry.mirroring import SchemaCopy

    alias = settings.source.alias
    avoided = (alias, settings.target.alias)
    naming = SchemaNaming(alias, avoided) if settings.naming is Naming.prefix else SchemaNaming()
    return lambda source, target: SchemaCopy(source, target, naming, with_configs=settings.sync_configs)


async def _report(engines: Sequence[Engine], report: Report) -> None:
    while not report.quiet:
        await asyncio.sleep(report.interval_s)
        _show(engines, report, final=False)


def _show(engines: Sequence[Engine], report: Report, *, final: bool) -> None:
    for engine in engines:
        if report.as_json:
            print_json_line(_document(engine, final))
        elif final or not sys.stdout.isatty():
            print_line(_line(engine), err=True, flush=True)
    if not report.as_json and not final and sys.stdout.isatty():
        clear_screen()
        for engine in engines:
            print_line(_line(engine))
        rows = [row for engine in engines for row in engine.progress.rows()]
        rows.sort(key=lambda row: -(row.lag or 0))
        columns = ("source", "topic", "partition", "target", "position", "lag", "undecided", "records")
        print_table(columns, [row[:8] for row in map(_cells, rows[:_SHOWN])])
        for engine in engines:
            for refusal in engine.progress.refused()[:_MOST_REFUSALS]:
                print_line(refusal.text)
    sys.stdout.flush()


def _cells(row: Any) -> tuple[object, ...]:
    return (row.source, row.topic, row.partition, row.target, row.position, row.lag, row.undecided, row.records)


def _line(engine: Engine) -> str:
    progress = engine.progress
    records, size = progress.rates()
    pace = f"{records:,.0f} records/s, {size / 1e6:,.1f} MB/s, " if records else ""
    text = (
        f"{progress.alias}: {progress.records:,} record{'' if progress.records == 1 else 's'} in "
        f"{progress.transactions:,} transaction{'' if progress.transactions == 1 else 's'}, {pace}lag {progress.lag:,}"
    )
    text += f", {progress.failures} failures passed" if progress.failures else ""
    refused = sum(row.stands for row in progress.refused())
    return text + (f", {counted(refused, 'partition or topic', 'partitions or topics')} refused" if refused else "")


def _document(engine: Engine, final: bool) -> dict[str, Any]:
    progress = engine.progress
    records, size = progress.rates()
    return {
        "time_ms": time.time_ns() // 1_000_000,
        "source": progress.alias,
        "final": final,
        "records": progress.records,
        "bytes": progress.bytes,
        "transactions": progress.transactions,
        "records_per_s": round(records),
        "bytes_per_s": round(size),
        "lag": progress.lag,
        "failures": progress.failures,
        "last_failure": progress.last_failure,
        "cycles": progress.cycles,
        "refused": progress.refused(),
        "partitions": progress.rows(),
        "groups": progress.groups,
    }


@contextlib.contextmanager
def _stopped_by_signals(engines: Sequence[Engine]) -> Iterator[None]:
    """Treats the first Ctrl-C, SIGTERM or SIGHUP as a request to end; the next has its default effect."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    is_stopping = False

    def ask() -> None:
        nonlocal is_stopping
        if is_stopping and task is not None:
            task.cancel()
        is_stopping = True
        for engine in engines:
            engine.stop()

    numbers = stop_signals()
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        loop.add_signal_handler(number, ask)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
