from __future__ import annotations

import shlex

import pytest

from oncelog.base.notation.shell_words import argument, option, word
from tests.shell import shell_words

NAMES = [
    "orders",
    "-f",
    "--execute",
    "",
    "a b",
    "it's",
    '"',
    "$(reboot)",
    "`x`",
    "a;b&c|d>e",
    "!!",
    "*?[a]",
    "~root",
    "=ls",
    "#x",
    "a\\b",
    "größe 日本語 🚚",
]
HOSTILE = ["a\nb", "'\n\\'", "\x1b]0;x\x07", "\x9b2J1", "-\u202ex", "a\u2028b7", "\udcff", "\t", "\n0123"]


@pytest.mark.parametrize("name", [*NAMES, *HOSTILE])
def test_a_shell_reads_the_name_back(name: str) -> None:
    assert shell_words(f"{word(name)} {option('--group', name)} x {argument(name)}") == [
        name,
        *([f"--group={name}"] if name.startswith("-") else ["--group", name]),
        "x",
        *(["--", name] if name.startswith("-") else [name]),
    ]
    assert word(name).isprintable()


@pytest.mark.parametrize("name", NAMES)
def test_printable_names_are_quoted_as_every_shell_reads_them(name: str) -> None:
    assert shlex.split(word(name)) == [name]


def test_words_that_need_no_quotes_have_none() -> None:
    assert option("--topic", "orders") == "--topic orders"
    assert option("--start-offset", -1) == "--start-offset=-1"
    assert argument("a", "-b") == "-- a -b"
