"""Printing rows: a plain aligned table, or JSON. Nothing here knows what the rows are."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from oncelog.base.notation.json_values import text_or_base64 as text_or_base64
from oncelog.base.notation.json_values import to_json as to_json
from oncelog.base.notation.visible_text import visible, visible_json
from oncelog.cli.support.terminal import print_document, print_line


def print_json(value: Any) -> None:
    """Print a JSON document on stdout."""
    print_document(_document(value, indent=2) + "\n")


def print_json_line(value: Any) -> None:
    """Print a JSON document on one line of stdout."""
    print_document(_document(value, separators=(",", ":")) + "\n")


def print_json_rows(rows: Iterable[Any]) -> None:
    """Print what ``print_json`` prints of a list of rows, without having more than one of them at a time."""
    opened = False
    for row in rows:
        text = _document(row, indent=2).replace("\n", "\n  ")
        print_document(f"{',' if opened else '['}\n  {text}")
        opened = True
    print_document("\n]\n" if opened else "[]\n")


def _document(value: Any, **layout: Any) -> str:
    return visible_json(json.dumps(to_json(value), ensure_ascii=_is_not_utf8(), **layout))


def _is_not_utf8() -> bool:
    """True where stdout has another encoding, which may lack characters: JSON has escapes for all of them."""
    return getattr(sys.stdout, "encoding", None) not in ("utf-8", "UTF-8", None)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """An aligned table with a heading; numbers to the right, None as a dash."""
    cells = [*map(_cells, rows)]
    print_long_table(columns, lambda: iter(cells))


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[object]], document: object, *, as_json: bool) -> None:
    """A table of ``rows``, or the ``document`` that they are of."""
    if as_json:
        print_json(document)
    else:
        print_table(columns, rows)


def print_result(line: str, document: object, *, as_json: bool) -> None:
    """The one line that tells what a command has done, or the ``document`` that says it to programs."""
    if as_json:
        print_json(document)
    else:
        print_line(line)


def print_long_table(columns: Sequence[str], rows: Callable[[], Iterator[Sequence[object]]]) -> None:
    """A table whose rows are gone through twice, first for the widths of its columns, instead of being kept."""
    widths = [len(name) for name in columns]
    numeric: list[bool] | None = None
    for row in map(_cells, rows()):
        widths = [*map(max, widths, map(len, row))]
        numeric = [so_far and _is_number(cell) for so_far, cell in zip(numeric or [True] * len(row), row, strict=True)]
    rights = numeric or [False] * len(columns)
    for line in itertools.chain([[name.upper() for name in columns]], map(_cells, rows())):
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, rights, strict=True)
        )
        print_line("  ".join(padded).rstrip())


def _cells(row: Sequence[object]) -> list[str]:
    return ["-" if value is None else visible(str(value)) for value in row]


def _is_number(text: str) -> bool:
    return text == "-" or text.removeprefix("-").isdigit()


class Progress(Protocol):
    """Progress of long work."""

    def __call__(self, done: int, total: int | None) -> None:
        """``done`` of ``total`` units are finished; ``total`` None when it is not known."""


@contextmanager
def progress(title: str | None) -> Iterator[Progress]:
    """Progress of long work on stderr, if that is a terminal; else, and for None, nothing."""
    if title is None or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(visible(title), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
