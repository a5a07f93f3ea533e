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
OF_APACHE_KAFKA: Final = ("docs/share-groups.md",)
"""Pages that are played beside Apache Kafka."""


def _marks(page: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.integration] * (page in DEAR) + [pytest.mark.java] * (page in OF_APACHE_KAFKA)


@pytest.mark.slow
@pytest.mark.parametrize("page", [pytest.param(page, marks=_marks(page)) for page in STAGES])
def test_the_examples_of_a_page_work(page: str, tmp_path: Path) -> None:
    directory = tmp_path / "reader"
    directory.mkdir()
    with STAGES[page](directory) as stage:
        play([block for block in blocks_of(page) if block.is_run_here], stage, directory)
