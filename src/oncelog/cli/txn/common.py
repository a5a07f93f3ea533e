"""Options, columns and reports that the commands of ``oncelog txn`` share."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from oncelog.admin.transactions.durations import duration_text
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.notation.visible_text import visible, visible_json
from oncelog.cli.support.terminal import confirm, print_line, redraw_line

if TYPE_CHECKING:
    from oncelog.admin.transactions.audit_trail import Audit
    from oncelog.admin.transactions.broker_requests import Progress, Unanswered
    from oncelog.admin.transactions.cluster_scan import OpenTransaction, Scope

_PATIENCE_S: Final = 0.7
EXIT_HANGING: Final = 2
"""The exit code with --fail-on-hanging."""

Topics = Annotated[
    list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Only this topic; may be repeated.")
]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", metavar="NUMBER", min=0, help="Only this partition of --topic.")
]
OfBroker = Annotated[int | None, typer.Option("--broker", metavar="ID", help="Only what this broker leads.")]
MinAge = Annotated[
    int | None,
    typer.Option(
        "--min-age-ms",
        metavar="MS",
        min=0,
        help="The age from which on it may hang. Default: the transaction's own time-out where it is known, else "
        "transaction.max.timeout.ms and five minutes.",
    ),
]
FailOnHanging = Annotated[
    bool, typer.Option("--fail-on-hanging", help=f"Exit with {EXIT_HANGING} if a transaction hangs.")
]
AuditLog = Annotated[
    Path | None,
    typer.Option(
        "--audit-log",
        metavar="FILE",
        envvar="ONCELOG_AUDIT_LOG",
        help="Append what was checked and done, as JSON lines. Default: to stderr.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

COLUMNS: Final = ("topic", "partition", "producer", "epoch", "start", "age", "transactional id", "behind", "verdict")


def scope_of(topics: list[str] | None, partition: int | None, broker: int | None) -> Scope:
    """Raises BadParameter for a partition without its topic."""
    from oncelog.admin.transactions.cluster_scan import Scope

    if partition is None:
        return Scope(tuple(topics or ()), broker=broker)
    if not topics or len(topics) != 1:
        raise typer.BadParameter("give the one --topic it belongs to", param_hint="--partition")
    return Scope(partitions=(TopicPartition(TopicName(topics[0]), partition),), broker=broker)


def cells(transaction: OpenTransaction) -> tuple[object, ...]:
    return (
        transaction.producer.topic,
        transaction.producer.partition,
        transaction.producer.producer_id,
        transaction.producer.producer_epoch,
        transaction.start_offset,
        None if transaction.age_ms is None else duration_text(transaction.age_ms),
        transaction.transactional_id,
        transaction.records_behind,
        transaction.verdict.value,
    )


def report_unanswered(unanswered: Iterable[Unanswered]) -> None:
    """Prints unanswered requests on stderr: they may conceal hanging transactions."""
    for question in unanswered:
        print_line(f"oncelog: not answered: {question}", err=True)


def audit_of(path: Path | None) -> Audit:
    """The writer of audit lines to a file, or to stderr."""
    from oncelog.admin.transactions.audit_trail import audit_file

    if path is not None:
        return audit_file(path)

    def to_stderr(entry: Any) -> None:
        import json

        print_line("audit: " + visible_json(json.dumps(entry, ensure_ascii=False)), err=True, flush=True)

    return to_stderr


def confirmed(question: str, yes: bool) -> bool:
    """True if the user agrees: asks on a terminal; elsewhere only --yes counts."""
    if yes:
        return True
    if not sys.stdin.isatty():
        return False
    return confirm(question)


@contextmanager
def progress_on_terminal(noun: str = "requests answered") -> Iterator[Progress]:
    """Shows the progress of a long scan on stderr, if that is a terminal. It does not use rich, whose import takes
    longer than most scans.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    started = time.monotonic()
    shown = False

    def show(done: int, total: int | None) -> None:
        nonlocal shown
        if time.monotonic() - started > _PATIENCE_S:
            shown = True
            redraw_line(f"{done} of {total} {noun}")

    try:
        yield show
    finally:
        if shown:
            redraw_line("")


def sentences(lines: Iterable[str], indent: str = "  ") -> None:
    """Prints sentences as a list, wrapped to the terminal's width."""
    import shutil
    import textwrap

    width = max(60, min(shutil.get_terminal_size((100, 24)).columns, 110))
    for line in lines:
        wrapped = textwrap.wrap(visible(line), width, initial_indent=f"{indent}• ", subsequent_indent=f"{indent}  ")
        for piece in wrapped:
            print_line(piece)
