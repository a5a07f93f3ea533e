"""`oncelog serve` starts without the heavy libraries: each costs tens of milliseconds and megabytes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

import pytest

HEAVY: Final = (
    "numpy",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pyspark",
    "rich",
    "kazoo",
    "starlette",
    "uvicorn",
    "confluent_kafka",
    "oncelog.spark",
    "oncelog.client.blocking",
    "oncelog.admin",
    "oncelog.sim",
)
"""Modules that neither importing the serving path nor serving without `--http` may load."""


def _loaded(statement: str) -> set[str]:
    program = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return set(json.loads(run.stdout.splitlines()[-1]))


@pytest.mark.parametrize("module", ["oncelog.cli.serve", "oncelog.runtime", "oncelog.node"])
def test_the_serving_path_imports_nothing_heavy(module: str) -> None:
    loaded = _loaded(f"import {module}")
    assert sorted(loaded.intersection(HEAVY)) == []


def test_messages_and_handlers_are_loaded_when_first_asked_for() -> None:
    loaded = _loaded("import oncelog.cli.serve")
    assert "oncelog.handlers.elect_leaders" not in loaded
    assert "oncelog.wire.messages.elect_leaders" not in loaded
