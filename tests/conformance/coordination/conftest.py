"""Processes that the tests of the coordination tree share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.coordination.tree_process import TreeProcess


@pytest.fixture(scope="module")
def tree_process() -> Iterator[TreeProcess]:
    """Another process to open trees in."""
    with TreeProcess() as process:
        yield process
