"""Tables of replicas that are moving, and waiting for them with progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from oncelog.cli.support.output import print_table, progress
from oncelog.cli.support.terminal import print_line

if TYPE_CHECKING:
    from oncelog.admin.reassignments import ReassignmentRow

POLL_S: Final = 0.5
MOST_ROWS: Final = 20
"""Partitions that a table shows; ``--json`` has them all."""
_TELL_S: Final = 10.0
"""Seconds between two lines of progress where no bar can be shown."""

Timeout = Annotated[
    float | None,
    typer.Option("--timeout", metavar="SECONDS", min=0, help="Wait no longer; what has begun goes on in the cluster."),
]


def wait_until_moved(task: str, left: Callable[[], int], timeout_s: float | None) -> bool:
    """Polls ``left`` until it returns 0 and shows progress; False after ``timeout_s``."""
    begun = told = time.monotonic()
    remaining = total = left()
    with progress(task) as show:
        while remaining:
            total = max(total, remaining)
            show(total - remaining, total)
            now = time.monotonic()
            if timeout_s is not None and now - begun >= timeout_s:
                return False
            if not sys.stderr.isatty() and now - told >= _TELL_S:
                told = now
                print_line(f"{task}: {total - remaining} of {total} partitions done", err=True)
            time.sleep(POLL_S)
            remaining = left()
    return True


def show_reassignments(rows: Sequence[ReassignmentRow]) -> None:
    print_table(
        ("topic", "partition", "moves to", "adding", "removing"),
        [
            (row.topic, row.partition, ids_text(row.target), ids_text(row.adding), ids_text(row.removing))
            for row in rows[:MOST_ROWS]
        ],
    )
    tell_rest(len(rows))


def tell_rest(count: int) -> None:
    if count > MOST_ROWS:
        print_line(f"… and {count - MOST_ROWS} more; --json has all of them")


def ids_text(brokers: Sequence[int]) -> str | None:
    """``1,2,3``; None for no brokers, which tables show as a dash."""
    return ",".join(map(str, brokers)) or None
