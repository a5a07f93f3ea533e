"""docs/testing-your-application.md, run as its readers would run it: its files in a directory, and pytest."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import HANG_S

GUIDE = Path(__file__).parents[2] / "docs" / "testing-your-application.md"
BLOCK = re.compile(r"```python\n# (?P<name>\w+\.py)\n(?P<text>.*?)```", re.DOTALL)
FOREIGN = ["randomly", "xdist", "xdist.looponfail", "hypothesispytest", "anyio", "timeout"]
"""Plugins of our own tests, which its readers need not have, and which take longer to import than pytest."""
TESTS = [
    "test_app.py",
    "test_security.py test_secured_fixtures.py",
    "test_cluster.py test_faults.py test_fixture.py test_own_broker.py test_time.py test_worker.py",
    "test_simulated.py",
]


@pytest.fixture
def directory(tmp_path):
    for block in BLOCK.finditer(GUIDE.read_text("utf-8")):
        (tmp_path / block["name"]).write_text(block["text"], "utf-8")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("names", TESTS)
def test_the_guide_is_right(directory, names):
    without = [f"no:{name}" for name in ("cacheprovider", *FOREIGN)]
    command = [sys.executable, "-m", "pytest", "-q", *(part for name in without for part in ("-p", name))]
    command += names.split()
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stdout


def test_every_file_of_the_guide_is_run(directory):
    assert {path.name for path in directory.glob("test_*.py")} == set(" ".join(TESTS).split())
