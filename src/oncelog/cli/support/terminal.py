"""The one place that writes text to stdout and stderr.

The rule: names, ids, principals and messages come from peers, so every line goes through ``visible_text`` first. A line
is one line: callers print an empty one for a gap, and never a line end inside a text. Raw bytes leave by
``records.record_output`` alone (``tests/checks/single_places.py``).
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TextIO

from oncelog.base.notation.visible_text import visible, visible_lines


def print_line(text: object = "", *, err: bool = False, flush: bool = False) -> None:
    stream = sys.stderr if err else sys.stdout
    stream.write(visible(str(text)) + "\n")
    if flush:
        stream.flush()


def print_lines(text: str, *, err: bool = False) -> None:
    """Print a text whose line ends are ours: help, a plan."""
    (sys.stderr if err else sys.stdout).write(visible_lines(text) + "\n")


def print_document(text: str) -> None:
    """Print a part of a JSON document that ``output`` has escaped."""
    sys.stdout.write(text)


def clear_screen() -> None:
    """Begin at the top of an empty terminal."""
    sys.stdout.write("\x1b[H\x1b[2J")


def redraw_line(text: str) -> None:
    """Put a text in the place of the last line on stderr; no text clears it."""
    sys.stderr.write("\r\x1b[2K" + visible(text))
    sys.stderr.flush()


def confirm(question: str) -> bool:
    """Ask on the terminal, in favour of no. Raises typer.Abort."""
    import typer

    return typer.confirm(visible(question), err=True)


def ask_password(question: str) -> str:
    """Ask for a password twice, without showing it. Raises typer.Abort."""
    import typer

    password: str = typer.prompt(visible(question), hide_input=True, confirmation_prompt=True, err=True)
    return password


def log_to_stderr(level: int, form: str) -> None:
    """Log on stderr, one line for each message."""
    import logging

    from oncelog.base.notation.log_lines import LineFormatter

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(form))
    logging.basicConfig(level=level, handlers=[handler])


def escape_diagnostics() -> None:
    """Escape the tracebacks of bugs, and the warnings of a command that has no log: both show what peers sent."""
    import logging
    import threading

    from oncelog.base.notation.log_lines import LineFormatter

    sys.excepthook = _show_exception
    threading.excepthook = _show_in_thread
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(LineFormatter())


def _show_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    import traceback

    stream: TextIO | None = sys.stderr
    if stream is not None:
        stream.write(visible_lines("".join(traceback.format_exception(kind, error, trace))))


def _show_in_thread(arguments: object) -> None:
    error = getattr(arguments, "exc_value", None)
    if error is not None and not isinstance(error, SystemExit):
        _show_exception(type(error), error, error.__traceback__)
