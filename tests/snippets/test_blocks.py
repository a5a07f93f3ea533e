"""Every block of README and docs is run, or says why it is not; transcripts are compared as they say."""

from __future__ import annotations

import pytest

from oncelog.core.configs.keys import broker_key
from tests.snippets.blocks import PAGES, Block, blocks_of, problems
from tests.snippets.stages import STAGES
from tests.snippets.transcripts import commands, differences


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_says_why_not(page: str) -> None:
    blocks = blocks_of(page)
    wrong = [line for block in blocks for line in problems(block)]
    wrong += [f"{block.place}: {page} has no stage" for block in blocks if block.is_run_here and page not in STAGES]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", [page for page in PAGES if page != "docs/mirror.md"])  # which has client keys
def test_keys_of_a_properties_file_are_keys_of_a_broker(page: str) -> None:
    lines = [line for block in blocks_of(page) if block.language == "properties" for line in block.text.splitlines()]
    keys = [line.partition("=")[0].strip() for line in lines if "=" in line and not line.startswith((" ", "#"))]
    # Providers have names of their own, and parameters.
    assert [key for key in keys if broker_key(key) is None and not key.startswith("config.providers.")] == []


def test_no_stage_is_left_over() -> None:
    assert [page for page in STAGES if not any(block.is_run_here for block in blocks_of(page))] == []


def test_a_block_without_a_reason_or_a_language_is_refused() -> None:
    assert list(problems(Block("docs/a.md", 1, "sh", "", "not run: no")))
    assert list(problems(Block("docs/a.md", 1, "", "", "")))
    assert list(problems(Block("docs/a.md", 1, "sh", "", "run by: tests/conftest.py")))
    assert not list(problems(Block("docs/a.md", 1, "sh", "", "not run: needs three hosts and ZooKeeper")))


def test_a_transcript_is_commands_with_their_outputs() -> None:
    assert commands("$ a \\\n  b\n1\n2\n$ c\n") == [("a    b", "1\n2\n"), ("c", "")]


@pytest.mark.parametrize(
    ("expected", "actual", "is_alike"),
    [
        ("open for 4 s, since 2026-11-21 11:24:52 UTC", "open for 12 min,\n  since 2027-01-02 01:02:03 UTC", True),
        ("cluster …  controller 1", "cluster abc  controller 1", True),
        ("first\n…\nlast", "first\na\nb\nlast", True),
        ("first\n…", "first\n", True),
        ("offset 2", "offset 3", False),
        ("first", "first\nsecond", False),
    ],
)
def test_times_and_what_an_ellipsis_stands_for_may_differ(expected: str, actual: str, is_alike: bool) -> None:
    assert (differences(expected, actual) == "") == is_alike
