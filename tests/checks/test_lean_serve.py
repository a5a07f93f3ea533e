"""`oncelog serve` starts without heavy libraries, of which each costs tens of milliseconds and megabytes, and without
the parts of a broker that a new one, alone, does not need yet: together they cost as much."""

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
    "oncelog.legacy",
)
"""Modules that neither importing the serving path nor serving without `--http` may load."""

NEEDED_LATER: Final = (
    "decimal",
    "hashlib",
    "hmac",
    "shutil",
    "oncelog.core.acls",
    "oncelog.core.controller.replicas.reassignments",
    "oncelog.core.controller.topics",
    "oncelog.core.groups.model",
    "oncelog.core.groups.shard",
    "oncelog.core.producers",
    "oncelog.core.sasl",
    "oncelog.core.transactions.model",
    "oncelog.core.transactions.shard",
    "oncelog.handlers.broker.audit",
    "oncelog.handlers.large_requests",
    "oncelog.node.coordinators.log_batches",
    "oncelog.node.hanging",
    "oncelog.node.listeners.tls",
    "oncelog.node.access.access_log",
    "oncelog.node.observation.flight_recorder",
    "oncelog.node.requests.logins",
    "oncelog.records.batch",
    "oncelog.runtime.data.audit_log",
    "oncelog.storage.index",
    "oncelog.storage.log.partition_log",
    "oncelog.storage.maintenance",
    "oncelog.storage.recovery",
)
"""Modules that a broker needs for its first log, group, transaction or removal, or only where it is configured so."""

OF_OTHER_BROKERS: Final = (
    "oncelog.client",
    "oncelog.node.brokers.requests.batched",
    "oncelog.node.brokers.link",
    "oncelog.node.replication.fetcher",
    "oncelog.wire.messages",
)
"""Modules that speak to other brokers, and the messages of Kafka's protocol: nobody has asked for one yet."""

MOST_MODULES: Final = 214
"""Of our own; there were 222 when this was written, and 335 before. Each costs at least a tenth of a millisecond."""
MOST_DATACLASSES: Final = 83
"""Of our own; there were 72, and 185 before. Each costs two or three tenths of a millisecond; a ``NamedTuple``, which
does for values that never change, costs a quarter of that."""


_OUR_DATACLASSES: Final = """[
    f"{name}.{one.__qualname__}"
    for name, module in sys.modules.items() if name.startswith("oncelog")
    for one in vars(module).values()
    if isinstance(one, type) and one.__module__ == name and "__dataclass_fields__" in vars(one)
]"""


def _loaded(statements: str) -> set[str]:
    """The modules that there are once ``statements`` have run in a process of their own."""
    return set(_printed(statements, "[*sys.modules]"))


def _printed(statements: str, expression: str) -> list[str]:
    """The value of an expression once ``statements`` have run in a process of their own."""
    program = f"import json, sys\n{statements}\nprint(json.dumps({expression}))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    decoded: list[str] = json.loads(run.stdout.splitlines()[-1])
    return decoded


_BROKER_STARTS: Final = """
import asyncio
from oncelog.node.listeners.broker_settings import read_settings
from oncelog.runtime.server import Server

async def started():
    server = Server(read_settings({{}}, data_directory={data!r}, listen=("127.0.0.1", 0)))
    await server.start()
    await server.abandon()

asyncio.run(started())
"""


def _and_within(loaded: set[str], names: tuple[str, ...]) -> list[str]:
    """The modules among ``names``, and those in packages among them."""
    return sorted(text for text in loaded if text in names or text.startswith(tuple(f"{name}." for name in names)))


@pytest.mark.parametrize(
    "module",
    ["oncelog.cli.main", "oncelog.cli.processes.broker_process", "oncelog.runtime.process", "oncelog.node.node"],
)
def test_the_serving_path_imports_nothing_heavy(module: str) -> None:
    loaded = _loaded(f"import {module}")
    assert sorted(loaded.intersection(HEAVY)) == []


def test_messages_and_handlers_are_loaded_when_first_asked_for() -> None:
    loaded = _loaded("import oncelog.cli.processes.broker_process")
    assert "oncelog.handlers.topics.elect_leaders" not in loaded
    assert "oncelog.wire.messages.elect_leaders" not in loaded


def test_a_broker_that_is_ready_has_loaded_only_what_it_needs_so_far(tmp_path: Path) -> None:
    loaded = _loaded(_BROKER_STARTS.format(data=str(tmp_path / "data")))
    assert "oncelog.node.node" in loaded
    assert sorted(loaded.intersection(HEAVY)) == []
    assert _and_within(loaded, NEEDED_LATER) == []


def test_a_broker_alone_has_not_loaded_what_speaks_to_others(tmp_path: Path) -> None:
    loaded = _loaded(_BROKER_STARTS.format(data=str(tmp_path / "data")))
    assert _and_within(loaded, OF_OTHER_BROKERS) == []


def test_a_broker_that_is_ready_has_loaded_few_modules_and_dataclasses_of_ours(tmp_path: Path) -> None:
    loaded = _loaded(_BROKER_STARTS.format(data=str(tmp_path / "data")))
    assert len([name for name in loaded if name.startswith("oncelog")]) <= MOST_MODULES
    dataclasses = _printed(_BROKER_STARTS.format(data=str(tmp_path / "more")), _OUR_DATACLASSES)
    assert 0 < len(dataclasses) <= MOST_DATACLASSES
