"""Lines of a log that no peer can forge: one line for each message, tracebacks indented behind it."""

from __future__ import annotations

import logging
from typing import Final

from oncelog.base.notation.visible_text import visible

_INDENT: Final = "    "


class LineFormatter(logging.Formatter):
    """Formats a record as one visible line. Lines of a traceback are indented: a record never begins so."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        return visible(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        first, *trace = super().format(record).split("\n")
        return "\n".join([first, *(_INDENT + visible(line) for line in trace)])


def log_with_trace(logger: logging.Logger, level: int, message: str, trace: str) -> None:
    """Log a message with a traceback that is text already, for any formatter to append as it appends its own."""
    if logger.isEnabledFor(level):
        record = logger.makeRecord(logger.name, level, "", 0, "%s", (message,), None)
        record.exc_text = trace.rstrip("\n") or None
        logger.handle(record)
