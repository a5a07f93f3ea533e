"""The one place that writes text to stdout and stderr.

Names, ids, principals and messages come from peers, so every line passes through ``visible_text``. Callers print an
empty line for a gap, never a line end inside a text. Raw bytes go through ``records.record_output`` alone.
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


def print_lines(text: str) -> None:
    """Prints text whose line ends are ours: help, a plan."""
    sys.stdout.write(visible_lines(text) + "\n")


def print_document(text: str) -> None:
    """Print a part of a JSON document that ``output`` has escaped."""
    sys.stdout.write(text)


def clear_screen() -> None:
    sys.stdout.write("\x1b[H\x1b[2J")


def redraw_line(text: str) -> None:
    """Replaces the last line on stderr; empty text clears it."""
    sys.stderr.write("\r\x1b[2K" + visible(text))
    sys.stderr.flush()


def confirm(question: str) -> bool:
    """Asks on the terminal; the default is no. Raises typer.Abort."""
    import typer

    return typer.confirm(visible(question), err=True)


def ask_password(question: str) -> str:
    """Asks twice for a password without echo. Raises typer.Abort."""
    import typer

    password: str = typer.prompt(visible(question), hide_input=True, confirmation_prompt=True, err=True)
    return password


def log_to_stderr(level: int, form: str) -> None:
    """Logs to stderr, one line per message."""
    import logging

    from oncelog.base.notation.log_lines import LineFormatter

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(form))
    logging.basicConfig(level=level, handlers=[handler])


def escape_diagnostics() -> None:
    """Escapes tracebacks and warnings: both show data from peers."""
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
