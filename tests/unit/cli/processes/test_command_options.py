"""A plain command line is read as typer reads it; what is not plain is left to typer."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Final

import pytest
import typer

from oncelog.cli.processes import console_process
from oncelog.cli.processes.broker_process import OPTIONS, run_broker
from oncelog.cli.processes.command_options import read_plainly
from oncelog.cli.processes.console import console
from oncelog.cli.processes.console_process import read_console, run_console
from oncelog.cli.processes.serve import serve
from oncelog.cli.support.option_groups import CommandGroup, grouped

ENVIRONMENT: Final = ("ONCELOG_BOOTSTRAP_SERVERS", "ONCELOG_COMMAND_CONFIG", "ONCELOG_AUDIT_LOG")
PLAIN = [
    [],
    ["--data-dir", "/d", "--listen", "127.0.0.1:0"],
    ["--data-dir=/d", "-o", "a=b", "-o", "c=d=e", "--http=[::1]:80", "-v"],
    ["--verbose", "--config", "x", "--listen", "a:1", "--listen", "b:2"],
    ["-o", ""],
]
NOT_PLAIN = [["--help"], ["-h"], ["--nope"], ["--data-dir"], ["extra"], ["-v", "-oa=b"], ["--verbose=1"], ["-o", "-v"]]


def typers_command() -> Any:
    app = typer.Typer(add_completion=False)
    app.command()(serve)
    return typer.main.get_command(app)


def as_typer_reads(arguments: list[str]) -> dict[str, Any]:
    read: dict[str, Any] = typers_command().make_context("serve", list(arguments)).params
    return {name: value for name, value in read.items() if value not in (None, False, (), [])}


def test_serve_declares_the_table_and_a_broker_takes_all_of_it() -> None:
    declared = {name: param for param in typers_command().params for name in param.opts}
    assert set(declared) - {"--help"} == {name for option in OPTIONS for name in option.names}
    for option in OPTIONS:
        for name in option.names:
            assert (declared[name].name, declared[name].multiple) == (option.parameter, option.repeats)
            assert declared[name].is_flag == (option.kind is bool)
    assert {option.parameter for option in OPTIONS} == set(inspect.signature(run_broker).parameters)


@pytest.mark.parametrize("arguments", PLAIN)
def test_plain_is_read_as_typer_reads_it(arguments: list[str]) -> None:
    plainly = read_plainly(OPTIONS, arguments)
    assert plainly is not None
    assert {name: Path(one) if name in ("data_dir", "config") else one for name, one in plainly.items()} == {
        name: Path(one) if name in ("data_dir", "config") else one for name, one in as_typer_reads(arguments).items()
    }


@pytest.mark.parametrize("arguments", NOT_PLAIN)
def test_what_is_not_plain_is_left_alone(arguments: list[str]) -> None:
    assert read_plainly(OPTIONS, arguments) is None


def test_the_console_declares_its_table_and_takes_all_of_it() -> None:
    app = CommandGroup()
    app.command()(console)
    command: Any = typer.main.get_command(app)
    declared = {name: param for param in command.params for name in param.opts}
    ours = inspect.signature(run_console).parameters
    for option in console_process.OPTIONS:
        for name in option.names:
            assert declared[name].name == option.parameter
            assert declared[name].multiple == option.repeats
        assert option.parameter in ours
    assert {param.envvar for param in command.params if param.envvar} == set(ENVIRONMENT)
    for name in ("listen", "sample_every", "bootstrap", "allow_changes"):
        assert ours[name].default == inspect.signature(grouped(console)).parameters[name].default


def test_a_plain_console_is_read_without_typer_and_any_other_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    plain = ["-b", "a:1", "--listen", "[::1]:80", "--sample-every=0", "--schema", "x=y", "--schema", "z=w"]
    assert read_console(plain) == {
        "bootstrap": "a:1",
        "listen": "[::1]:80",
        "sample_every": 0.0,
        "schema": ["x=y", "z=w"],
    }
    assert read_console(["--allow-changes", "--audit-log", "f"]) == {"allow_changes": True, "audit_log": Path("f")}
    for other in (
        ["--listen", "nowhere"],
        ["--audit-data", "."],
        ["--sample-every", "soon"],
        ["--sample-every", "601"],
        ["--auth", "token", "f"],
        ["-X", "a=b"],
        ["-h"],
    ):
        assert read_console(other) is None
    for name in ENVIRONMENT:
        with monkeypatch.context() as patch:
            patch.setenv(name, "x")
            assert read_console([]) is None
