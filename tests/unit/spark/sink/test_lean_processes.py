"""Spark plans and commits a write in processes of their own, and each imports what the sink names: what encodes rows is
for tasks alone, what decodes records not even for them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

HEAVY: Final = ("asyncio", "cryptography", "kazoo", "pandas", "pyspark", "oncelog.records.columns.decode")
FOR_TASKS: Final = ("numpy", "pyarrow", "oncelog.records.columns")


def loaded(*modules: str) -> set[str]:
    """The modules that a new interpreter has after it imported some."""
    program = f"import json, sys, {', '.join(modules)}; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_planning_and_committing_load_nothing_that_encodes_rows() -> None:
    result = loaded("oncelog.spark.sink.options", "oncelog.spark.sink.modes", "oncelog.spark.sink.epoch_commit")
    assert result.isdisjoint({*HEAVY, *FOR_TASKS})


def test_tasks_load_nothing_that_decodes_records() -> None:
    assert loaded("oncelog.spark.sink.task_writer", "oncelog.spark.sink.ledger").isdisjoint(HEAVY)
