from __future__ import annotations

import logging
import sys
import threading

import pytest

from oncelog.base.notation.log_lines import LineFormatter
from oncelog.cli.support.terminal import escape_diagnostics, log_to_stderr, print_line, print_lines
from tests.terminal import run_on_terminal

EVIL = "x\x1b[2J\n\x9bFORGED\u202e\udcff"


def test_a_line_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(EVIL)
    print_line(EVIL, err=True, flush=True)
    print_line()
    print_lines(f"a\n{EVIL}\tb")
    shown = "x\\x1b[2J\\n\\x9bFORGED\\u202e\\udcff\n"
    out, err = capsys.readouterr()
    assert err == shown
    assert out == f"{shown}\na\nx\\x1b[2J\n\\x9bFORGED\\u202e\\udcff\tb\n"


def test_the_log_of_a_command_has_the_formatter_that_makes_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.WARNING)
    log_to_stderr(logging.INFO, "%(message)s")
    (handler,) = logging.root.handlers
    assert isinstance(handler.formatter, LineFormatter)
    assert logging.root.level == logging.INFO


def test_tracebacks_and_stray_warnings_are_escaped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stray = logging.StreamHandler(sys.stderr)
    monkeypatch.setattr(logging, "lastResort", stray)
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    escape_diagnostics()

    def fail() -> None:
        raise ValueError(EVIL)

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    try:
        fail()
    except ValueError as error:
        sys.excepthook(ValueError, error, error.__traceback__)
    logging.Logger("alone").callHandlers(logging.LogRecord("alone", logging.ERROR, "", 0, EVIL, (), None))
    err = capsys.readouterr().err
    assert err.count("ValueError: x\\x1b[2J\n\\x9bFORGED\\u202e\\udcff") == 2
    assert err.endswith("x\\x1b[2J\\n\\x9bFORGED\\u202e\\udcff\n")


def test_a_mistake_in_the_arguments_is_one_line() -> None:
    shown = run_on_terminal(["topic", EVIL])
    assert (shown.code, shown.act_on_terminal(), shown.text.count("\n")) == (2, [], 1)
