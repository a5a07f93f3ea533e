"""Printing rows: a plain aligned table, or JSON. Nothing here knows what the rows are."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from oncelog.base.json_values import text_or_base64 as text_or_base64
from oncelog.base.json_values import to_json as to_json


def print_json(value: Any) -> None:
    """Print a JSON document on stdout."""
    print(json.dumps(to_json(value), indent=2, ensure_ascii=False))


def print_json_line(value: Any) -> None:
    """Print a JSON document on one line of stdout."""
    sys.stdout.write(json.dumps(to_json(value), ensure_ascii=False, separators=(",", ":")) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """An aligned table with a heading; numbers to the right, None as a dash."""
    cells = [["-" if one is None else str(one) for one in row] for row in rows]
    numeric = [all(_is_number(row[i]) for row in cells) and bool(cells) for i in range(len(columns))]
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(columns)]
    for line in ([name.upper() for name in columns], *cells):
        padded = (
            one.rjust(width) if right else one.ljust(width)
            for one, width, right in zip(line, widths, numeric, strict=True)
        )
        print("  ".join(padded).rstrip())


def _is_number(text: str) -> bool:
    return text == "-" or text.removeprefix("-").isdigit()


class Progress(Protocol):
    """Progress of long work."""

    def __call__(self, done: int, total: int | None) -> None:
        """``done`` of ``total`` units are finished; ``total`` None when it is not known."""


@contextmanager
def progress(what: str | None) -> Iterator[Progress]:
    """Progress of long work on stderr, if that is a terminal; else, and for None, nothing."""
    if what is None or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
