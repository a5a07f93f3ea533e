"""The command's frame: what is imported when, and how it ends."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.cli.commands import COMMANDS, load_command
from oncelog.cli.main import invoke
from oncelog.cli.support.failures import complain
from tests.waiting import HANG_S


def modules_after(*arguments: str) -> set[str]:
    script = (
        "import sys, json\nfrom oncelog.cli.main import invoke\n"
        f"invoke({list(arguments)!r})\nprint('\\n' + json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], []])
def test_help_imports_no_sub_command(arguments: list[str]) -> None:
    loaded = modules_after(*arguments)
    assert {name for name in loaded if name.startswith("oncelog.")} == {
        "oncelog.base",
        "oncelog.base.lazy_names",
        "oncelog.base.notation",
        "oncelog.base.notation.visible_text",
        "oncelog.cli",
        "oncelog.cli.commands",
        "oncelog.cli.main",
        "oncelog.cli.processes",
        "oncelog.cli.processes.command_options",
        "oncelog.cli.support",
        "oncelog.cli.support.failures",
        "oncelog.cli.support.option_groups",
        "oncelog.cli.support.terminal",
        "oncelog.runtime",
        "oncelog.runtime.stop_signals",
    }
    assert not loaded & {"rich", "asyncio", "numpy", "pyarrow", "pyspark"}


@pytest.mark.slow
def test_a_sub_command_imports_no_other() -> None:
    loaded = modules_after("topic", "list", "--help")
    assert not loaded & {f"oncelog.cli.{name}" for name in ("serve", "table", "records", "group")}
    assert not loaded & {"rich", "asyncio", "numpy", "pyarrow", "pyspark"}


@pytest.mark.slow
def test_a_broker_keeps_nothing_of_the_command_lines_machinery(tmp_path: Path) -> None:
    loaded = modules_after("serve", "--config", str(tmp_path / "missing"), "-o", "log.retention.hours=24")
    assert "oncelog.cli.processes.broker_process" in loaded
    assert not loaded & {"typer", "click", "pydantic", "rich", "numpy", "pyarrow", "pyspark", "kazoo"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_sub_command_has_help_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in leaves([name], load_command(name, COMMANDS[name].target)):
        assert invoke([*arguments, "--help"]) == 0
        assert "Examples:" in capsys.readouterr().out, arguments


def leaves(path: list[str], command: Any) -> Iterator[list[str]]:
    """The words of every command below ``command`` that is no group of others."""
    inner = getattr(command, "commands", {})
    for name, one in inner.items():
        yield from leaves([*path, name], one)
    if not inner:
        yield path


def test_a_mistyped_command_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["topics"]) == 2
    assert capsys.readouterr().err == "oncelog: no command 'topics'; did you mean 'topic'? (see oncelog --help)\n"


@pytest.mark.parametrize(
    ("arguments", "command"),
    [(["consume", "--from"], "consume"), (["topic", "create", "t", "--partitions"], "topic create")],
)
def test_an_option_without_its_argument_leads_to_the_help_of_its_command(
    arguments: list[str], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(arguments) == 2
    told = f"oncelog {command}: Option '{arguments[-1]}' requires an argument (see oncelog {command} --help)\n"
    assert capsys.readouterr().err == told


def test_a_complaint_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert complain("a\n  b") == 1
    assert capsys.readouterr().err == "oncelog: a b\n"


def test_ctrl_c_ends_with_130_and_nothing_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("oncelog.cli.support.options.ClusterOptions.open_client", interrupted)
    assert invoke(["topic", "list"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_failure(tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / f"{number}-0").mkdir()
        (tmp_path / f"{number}-0" / "partition.metadata").write_text("version: 0")
    run = [sys.executable, "-c", "from oncelog.cli.main import run; run()", "log", "dump", str(tmp_path)]
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(HANG_S) == 0
        assert process.stderr.read() == b""


COMMAND = [sys.executable, "-c", "from oncelog.cli.main import run; run()"]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--version"], ["log", "dump", "."], ["log", "dump", ".", "--json"]])
def test_output_that_cannot_be_written_is_one_line(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 0\n")
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (1, b"oncelog: cannot write the output: no space left on device\n")


@pytest.mark.slow
def test_a_closed_stdout_is_no_bug() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, "--version"], stderr=subprocess.PIPE, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
def test_what_the_encoding_of_stdout_lacks_is_escaped(tmp_path: Path) -> None:
    directory = tmp_path / "dätä"
    directory.mkdir()
    (directory / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    environment = {"PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path)}
    (directory / "meta.properties").write_text("version=1\n")
    run = [*COMMAND, "log", "dump", "dätä"]
    plain = subprocess.run(run, capture_output=True, cwd=tmp_path, env=environment, check=True)
    assert rb"d\xe4t\xe4/meta.properties" in plain.stdout
    as_json = subprocess.run([*run, "--json"], capture_output=True, cwd=tmp_path, env=environment, check=True)
    assert json.loads(as_json.stdout.splitlines()[-1])["file"] == "dätä/meta.properties"


@pytest.mark.parametrize("arguments", [["serve", "--data-dir", ""], ["cluster", "up", "--data-dir="]])
def test_a_data_directory_without_a_name_is_not_the_working_directory(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(arguments) == 2
    assert "the name of the directory is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["group", "list", "--state", "Stabel"], "'Stabel' is not one of Stable, Empty"),
        (["log", "dump", ".", "--only", "logs"], "'logs' is not one of log, kafka, index"),
        (["log", "import", ".", "--to", "t", "--timestamps", "now"], "': 'now' is not one of 'file', 'none'"),
        (["topic", "list", "-X", "securty.protocol=SSL"], "securty.protocol is not a setting; did you mean security.p"),
    ],
)
def test_a_mistyped_word_is_a_usage_error(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(arguments) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_are_not_wrapped_where_a_shell_would_end_them(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in leaves([name], load_command(name, COMMANDS[name].target)):
        assert invoke([*arguments, "--help"]) == 0
        examples = capsys.readouterr().out.partition("Examples:\n")[2].partition("\n\n")[0].rstrip().split("\n")
        for before, line in itertools.pairwise(["", *examples]):
            assert before.endswith("\\") or "oncelog " in line, line


@pytest.mark.slow
def test_ctrl_c_while_modules_are_imported_says_nothing() -> None:
    script = (
        "import sys\nfrom oncelog.cli.main import run\nclass CtrlC:\n    def find_spec(self, name, *_):\n"
        "        if name == 'oncelog.cli.commands':\n            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, CtrlC())\nrun()"
    )
    done = subprocess.run([sys.executable, "-c", script, "topic", "list"], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
