"""``oncelog txn watch``: repeats find-hanging for people, scripts and Prometheus.

An unreachable cluster is reported and tried again; the watch ends only when told to.
"""

from __future__ import annotations

import itertools
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oncelog.admin.transactions.durations import moment_text
from oncelog.base.transaction_verdicts import Verdict
from oncelog.cli.support.failures import complain
from oncelog.cli.support.options import AdminOptions
from oncelog.cli.support.output import print_json_line, print_table, to_json
from oncelog.cli.support.terminal import clear_screen, print_line
from oncelog.cli.txn.common import (
    COLUMNS,
    EXIT_HANGING,
    FailOnHanging,
    MinAge,
    OfBroker,
    Partition,
    Topics,
    cells,
    report_unanswered,
    scope_of,
)
from oncelog.client.errors import ClientError, ConfigError

if TYPE_CHECKING:
    from oncelog.admin.transactions.cluster_scan import Scan, Scope
    from oncelog.client.blocking import Client

_SHOWN = 40


def watch(
    topics: Topics = None,
    partition: Partition = None,
    broker: OfBroker = None,
    min_age_ms: MinAge = None,
    interval_s: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="Pause between scans.")
    ] = 10,
    count: Annotated[
        int, typer.Option("--count", metavar="N", min=0, help="Scan N times, then end; 0: never end.")
    ] = 0,
    fail_on_hanging: FailOnHanging = False,
    prometheus: Annotated[
        int | None,
        typer.Option("--prometheus", metavar="PORT", min=0, max=65535, help="Serve the last scan as metrics."),
    ] = None,
    prometheus_address: Annotated[
        str, typer.Option("--prometheus-address", metavar="HOST", help="Address to serve metrics on.")
    ] = "127.0.0.1",
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Look for hanging transactions again and again, for people, scripts or Prometheus.

    A table that refreshes; with --json a line each time; with --prometheus metrics of clusters that are not ours.
    With --fail-on-hanging it ends with exit code 2 as soon as a transaction hangs; with --count it ends with 1 if the
    last scan reached no broker.

    \b
    Examples:
      oncelog txn watch
      oncelog txn watch --json --interval 60 >> open-transactions.jsonl
      oncelog txn watch --prometheus 9464 --bootstrap-servers kafka-1:9092
    """
    scope = scope_of(topics, partition, broker)
    exporter = None
    if prometheus is not None:
        from oncelog.cli.txn.prometheus_exporter import Exporter

        exporter = Exporter(prometheus_address, prometheus)
        print_line(f"metrics on http://{prometheus_address}:{exporter.port}/metrics", err=True, flush=True)
    with cluster.open_client() as client:
        for scans in itertools.count(1):
            result, seconds = _scan(client, scope, min_age_ms)
            if exporter is not None:
                exporter.scanned(result, seconds)
            if result is not None:
                _show(result, seconds, as_json=cluster.as_json, quiet=exporter is not None and not sys.stdout.isatty())
                if fail_on_hanging and result.of(Verdict.HANGING):
                    raise typer.Exit(EXIT_HANGING)
            if scans == count:
                if result is None or result.scanned_nothing:
                    raise typer.Exit(1)
                break
            time.sleep(max(0.0, interval_s - seconds))


def _scan(client: Client, scope: Scope, min_age_ms: int | None) -> tuple[Scan | None, float]:
    """A scan of the cluster, None if it failed, and its duration in seconds."""
    from oncelog.admin.transactions.cluster_scan import scan

    started = time.monotonic()
    result = None
    try:
        result = scan(client, scope, min_age_ms=min_age_ms)
    except ConfigError:
        raise
    except ClientError as error:
        complain(str(error))
    return result, time.monotonic() - started


def _show(result: Scan, seconds: float, *, as_json: bool, quiet: bool) -> None:
    from oncelog.cli.txn.diagnose import summary

    if as_json:
        print_json_line(_document(result, seconds))
        sys.stdout.flush()
        return
    if quiet:
        return
    if sys.stdout.isatty():
        clear_screen()
    print_line(f"{moment_text(result.now_ms)}  {summary(result, every=True)}  ({seconds:.1f} s)")
    report_unanswered(result.unanswered)
    shown = sorted(
        result.transactions,
        key=lambda transaction: (transaction.verdict.value != "hanging", -(transaction.age_ms or 0)),
    )[:_SHOWN]
    if shown:
        print_table(COLUMNS, [cells(transaction) for transaction in shown])
        if len(result.transactions) > len(shown):
            print_line(f"… {len(result.transactions) - len(shown)} more")
    sys.stdout.flush()


def _document(result: Scan, seconds: float) -> dict[str, Any]:
    document: dict[str, Any] = {
        "time_ms": result.now_ms,
        "took_ms": round(seconds * 1000),
        "partitions": result.partitions,
        **{verdict.value: len(result.of(verdict)) for verdict in Verdict},
        "unanswered": [str(transaction) for transaction in result.unanswered],
        "transactions": [
            to_json(transaction.as_row())
            for transaction in result.of(Verdict.HANGING, Verdict.SUSPECTED, Verdict.TWO_PHASE)
        ],
    }
    return document
