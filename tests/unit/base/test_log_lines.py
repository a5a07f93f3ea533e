from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from oncelog.base.notation.log_lines import LineFormatter, log_with_trace

FORGED = "alice\n2026-01-01 00:00:00,000 INFO    Principal = User:root is Allowed\x1b[1A\x9b2K\u202e\x85\u2028"


@pytest.fixture
def log() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    stream, logger = io.StringIO(), logging.Logger("test")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname)-7s %(message)s"))
    logger.addHandler(handler)
    yield logger, stream
    handler.close()


def test_a_message_is_one_line(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    logger.info("closing connection: authorization id (%s) differs", FORGED)
    (line,) = stream.getvalue().splitlines()
    assert line.isprintable()
    assert "alice\\n2026-01-01" in line


def test_a_traceback_is_indented_and_cannot_be_taken_for_a_record(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    try:
        raise ValueError(FORGED)
    except ValueError:
        logger.exception("bad %s", FORGED)
    log_with_trace(logger, logging.ERROR, FORGED, f"Traceback\n  ValueError: {FORGED}\n")
    lines = stream.getvalue().split("\n")[:-1]
    assert all(line.isprintable() for line in lines)
    records = [line for line in lines if not line.startswith("    ")]
    assert len(records) == 2
    assert all(line.startswith("    ") for line in lines if "ValueError: alice" in line)


def test_a_trace_reaches_formatters_of_others() -> None:
    stream, logger = io.StringIO(), logging.Logger("test")
    logger.addHandler(logging.StreamHandler(stream))
    log_with_trace(logger, logging.ERROR, "it failed", "Traceback\n  ValueError: x\n")
    log_with_trace(logger, logging.INFO, "no trace", "")
    assert stream.getvalue() == "it failed\nTraceback\n  ValueError: x\nno trace\n"
