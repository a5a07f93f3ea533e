"""The entry point of ``oncelog`` and ``python -m oncelog``.

A plain ``oncelog serve`` or ``oncelog console`` runs without typer, whose import takes as long as asyncio's. All other
command lines go to ``commands``.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial

from oncelog.cli.processes.command_options import read_plainly
from oncelog.cli.support.terminal import escape_diagnostics
from oncelog.runtime.stop_signals import interrupt_at_stop_signals


def run() -> None:
    """Runs this process's command line and exits with its code."""
    if "_ONCELOG_COMPLETE" in os.environ:
        from oncelog.cli.commands import app

        app()
    _prepare_streams()
    escape_diagnostics()
    # As Ctrl-C: what was begun is brought to a good end (a group is left, its offsets committed) on the way out.
    interrupt_at_stop_signals()
    try:
        code = invoke(sys.argv[1:])
    except KeyboardInterrupt:  # while the modules of a command are imported: nothing has begun
        code = 128 + signal.SIGINT
    try:
        sys.stdout.flush()  # at the interpreter's end it would be too late to say so
    except OSError as error:
        from oncelog.cli.support.failures import exit_code_of

        code = exit_code_of(error) or code
    sys.exit(code)


def _prepare_streams() -> None:
    """Reopens streams that the caller closed (``>&-``), and escapes characters that the terminal's encoding lacks."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # for as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def invoke(arguments: Sequence[str]) -> int:
    """Run the command line ``arguments``; the exit code. Expected failures are printed to stderr."""
    plain = _plain_command(arguments)
    if plain is not None:
        try:
            return plain()
        except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001  # sorted out there, bugs are raised again
            from oncelog.cli.support.failures import exit_code_of

            return exit_code_of(error)
    from oncelog.cli.commands import run_command

    return run_command(arguments)


def _plain_command(arguments: Sequence[str]) -> Callable[[], int] | None:
    """The command of a plain command line, ready to run; None if typer has to parse it."""
    if arguments[:1] == ["serve"]:
        from oncelog.cli.processes.broker_process import OPTIONS, run_broker

        values = read_plainly(OPTIONS, arguments[1:])
        return None if values is None else partial(run_broker, **values)
    if arguments[:1] == ["console"]:
        from oncelog.cli.processes.console_process import read_console, run_console

        values = read_console(arguments[1:])
        return None if values is None else partial(run_console, **values)
    return None
