"""The examples of each page, as a reader runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.snippets.blocks import blocks_of
from tests.snippets.play import play
from tests.snippets.stages import STAGES

DEAR: Final = ("docs/cluster.md", "docs/console.md", "docs/mirror.md", "docs/security-acls.md", "docs/security.md")
"""Pages that start several brokers, or dozens of commands: they are played by `make test-integration`."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.integration) if page in DEAR else page for page in STAGES]
)
def test_the_examples_of_a_page_work(page: str, tmp_path: Path) -> None:
    directory = tmp_path / "reader"
    directory.mkdir()
    with STAGES[page](directory) as stage:
        play([block for block in blocks_of(page) if block.is_run_here], stage, directory)
