"""A log format that peers cannot forge: one line for each message, tracebacks indented below it."""

from __future__ import annotations

import logging
from typing import Final

from oncelog.base.notation.visible_text import visible

_INDENT: Final = "    "


class LineFormatter(logging.Formatter):
    """Formats a record as one visible line, with an indented traceback: no record begins with an indent."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        return visible(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        first, *trace = super().format(record).split("\n")
        return "\n".join([first, *(_INDENT + visible(line) for line in trace)])


def log_with_trace(logger: logging.Logger, level: int, message: str, trace: str) -> None:
    """Log a message with a traceback that is already text, in the format of any handler."""
    # makeRecord does not check the level.
    if logger.isEnabledFor(level):
        record = logger.makeRecord(logger.name, level, "", 0, "%s", (message,), None)
        record.exc_text = trace.rstrip("\n") or None
        logger.handle(record)
