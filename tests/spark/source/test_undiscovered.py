"""Spark's search for Python sources fails: what of ours does not depend on it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark.conftest import Topic

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]


def test_jobs_do_not_depend_on_the_search(topic_with: Callable[..., Topic], tmp_path: Path) -> None:
    topic = topic_with(5)
    command = [sys.executable, "-m", "tests.spark.source.undiscovered"]
    run = subprocess.run(
        [*command, topic.bootstrap_servers, topic.name, tmp_path], stdout=subprocess.PIPE, text=True, check=True
    )
    assert run.stdout.splitlines() == ["True", "[5, 5, 5, 5, 5, 5]"]
