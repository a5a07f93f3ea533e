"""`oncelog serve` starts without the heavy libraries: each costs tens of milliseconds and megabytes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

HEAVY: Final = (
    "numpy",
    "pandas",
    "prometheus_client",
    "typer",
    "click",
    "pydantic",
    "email",
    "importlib.metadata",
    "zipfile",
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
    "oncelog.handlers.legacy",
    "oncelog.records.message_set",
)
"""Modules that neither importing the serving path nor serving without `--http` may load."""

NEEDED_LATER: Final = (
    "decimal",
    "hashlib",
    "hmac",
    "shutil",
    "oncelog.core.sasl.settings",
    "oncelog.node.monitoring.flight_recorder",
    "oncelog.storage.compaction.job",
    "oncelog.storage.log.partition_log",
    "oncelog.storage.recovery.recovery",
)
"""Modules that a broker needs for its first log or its first removal, or only where it is configured so."""


def _loaded(statement: str) -> set[str]:
    program = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return set(json.loads(run.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "module", ["oncelog.cli.main", "oncelog.cli.broker_process", "oncelog.runtime.process", "oncelog.node.node"]
)
def test_the_serving_path_imports_nothing_heavy(module: str) -> None:
    loaded = _loaded(f"import {module}")
    assert sorted(loaded.intersection(HEAVY)) == []


def test_messages_and_handlers_are_loaded_when_first_asked_for() -> None:
    loaded = _loaded("import oncelog.cli.broker_process")
    assert "oncelog.handlers.elect_leaders" not in loaded
    assert "oncelog.wire.messages.elect_leaders" not in loaded


def test_a_broker_that_is_ready_has_loaded_only_what_it_needs_so_far(tmp_path: Path) -> None:
    loaded = _loaded(
        "import asyncio\n"
        "from oncelog.node.settings import read_settings\n"
        "from oncelog.runtime.server import Server\n"
        f"settings = read_settings({{}}, data_directory={str(tmp_path / 'data')!r}, listen=('127.0.0.1', 0))\n"
        "async def started():\n"
        "    server = Server(settings)\n"
        "    await server.start()\n"
        "    await server.abandon()\n"
        "asyncio.run(started())\n"
    )
    assert "oncelog.node.node" in loaded
    assert sorted(loaded.intersection((*HEAVY, *NEEDED_LATER))) == []
