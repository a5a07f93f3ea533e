"""Prints rows as an aligned table or as JSON."""

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
    print_document(_document(value, indent=2) + "\n")


def print_json_line(value: Any) -> None:
    print_document(_document(value, separators=(",", ":")) + "\n")


def print_json_rows(rows: Iterable[Any]) -> None:
    """Prints a list of rows like ``print_json``, holding one row at a time."""
    opened = False
    for row in rows:
        text = _document(row, indent=2).replace("\n", "\n  ")
        print_document(f"{',' if opened else '['}\n  {text}")
        opened = True
    print_document("\n]\n" if opened else "[]\n")


def _document(value: Any, **layout: Any) -> str:
    return visible_json(json.dumps(to_json(value), ensure_ascii=_is_not_utf8(), **layout))


def _is_not_utf8() -> bool:
    """True if stdout's encoding may lack characters, which JSON then escapes."""
    return getattr(sys.stdout, "encoding", None) not in ("utf-8", "UTF-8", None)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints an aligned table with a heading: numbers to the right, None as a dash."""
    cells = [*map(_cells, rows)]
    print_long_table(columns, lambda: iter(cells))


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[object]], document: object, *, as_json: bool) -> None:
    """Prints ``rows`` as a table, or their JSON ``document``."""
    if as_json:
        print_json(document)
    else:
        print_table(columns, rows)


def print_result(line: str, document: object, *, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        print_line(line)


def print_long_table(columns: Sequence[str], rows: Callable[[], Iterator[Sequence[object]]]) -> None:
    """Prints a table whose rows are produced twice, first for the column widths, so that they need not be kept."""
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
    def __call__(self, done: int, total: int | None) -> None:
        """``done`` of ``total`` units are finished; ``total`` is None while it is unknown."""


@contextmanager
def progress(title: str | None) -> Iterator[Progress]:
    """A progress bar on stderr if that is a terminal and ``title`` is not None."""
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
