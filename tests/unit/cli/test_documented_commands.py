"""Each `oncelog …` in README, docs and the examples of `--help` is a command line that is taken."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer

from oncelog.cli.commands import app

ROOT: Final = Path(__file__).parents[3]
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK: Final = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE: Final = re.compile(r"`((?:[A-Z_]+=\S+ )?oncelog [^`]+)`")
PLACEHOLDER: Final = re.compile(r"[A-Z_]{1,}")
"""A word like NAME or N in prose; 1 stands for it, which is a number and a name."""
STOPS: Final = frozenset("|;&<>")


def shell_lines(text: str) -> Iterator[str]:
    """Lines of a page's blocks; their continuations joined, prompts taken off."""
    for language, block in BLOCK.findall(text):
        if language in ("", "sh", "console"):
            yield from (line.strip().removeprefix("$ ") for line in block.replace("\\\n", " ").splitlines())


def command_lines(line: str) -> Iterator[list[str]]:
    """The arguments of each `oncelog` in a line of a shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="".join(STOPS))
    lexer.whitespace_split = True
    words: list[str] = []
    try:
        result = [*lexer, "|"]
    except ValueError:
        return  # no line of a shell
    for word in result:
        if STOPS.isdisjoint(word) or set(word) - STOPS:
            words.append(word)
            continue
        while words and re.match(r"\w+=", words[0]):
            del words[0]
        if words[:1] == ["oncelog"]:
            yield [word for word in words[1:] if word != "…"]
        words = []


def read(arguments: list[str]) -> None:
    """Read a command line down to the sub-command that would run. Raises what a user would be told."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("oncelog", list(arguments))
    while hasattr(command, "resolve_command"):
        rest = [*getattr(context, "_protected_args", ()), *context.args]
        if not rest:
            return
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)


def refusal(arguments: list[str]) -> str | None:
    """The line in which a command line is refused; None if it is taken, names a group, or only lacks a file."""
    try:
        read(["1" if PLACEHOLDER.fullmatch(word) else word for word in arguments])
    except typer.Exit:
        return None
    except Exception as error:  # noqa: BLE001 - of classes that typer has had in several places
        told = str(error.format_message() if hasattr(error, "format_message") else error)
        return None if "does not exist" in told or type(error).__name__ == "NoArgsIsHelpError" else told
    return None


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands that can be named, with their names."""
    yield path, command
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from leaves(command.get_command(None, name), (*path, name))


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_are_taken(page: Path) -> None:
    text = page.read_text("utf-8")
    refused = [(line, why) for line in shell_lines(text) for item in command_lines(line) if (why := refusal(item))]
    for line in INLINE.findall(BLOCK.sub("", text).replace("\n", " ")):
        for one in command_lines(line):
            why = refusal(one)
            if why and "Missing" not in why:  # in prose a command may be named without its arguments
                refused.append((line, why))
    assert refused == []


@pytest.mark.slow
def test_the_examples_of_the_help_are_taken() -> None:
    seen, refused = 0, []
    for path, command in leaves(typer.main.get_command(app)):
        text = "\n".join(filter(None, (command.help, command.epilog)))
        for line in text.partition("Examples:")[2].splitlines():
            example = re.split(r"\s{2,}", line.strip())[0]  # what it does may follow after two blanks
            for arguments in command_lines(example):
                seen += 1
                why = refusal(arguments)
                refused += [(path, example, why)] if why else []
    assert refused == []
    assert seen > 100
