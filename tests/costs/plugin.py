"""Pytest's side of `tests.costs`: each process of a run writes down the processor time of each of its tests."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.costs.processes import ProcessTree

DIRECTORY: Final = "ONCELOG_TEST_COSTS"
"""The variable that names where to write."""
START, END = "(start and collection)", "(end)"


class _Ledger:
    """One line of JSON for each thing done, with the time since the one before."""

    def __init__(self, out: Path, worker: str) -> None:
        self._out, self._worker = out, worker
        self._tree = ProcessTree()
        self._cpu_s = 0.0
        self._at_s = time.monotonic()

    def write(self, what: str) -> None:
        cpu_s, at_s = self._tree.cpu_s(), time.monotonic()
        line = {"worker": self._worker, "what": what, "cpu_s": cpu_s - self._cpu_s, "wall_s": at_s - self._at_s}
        with self._out.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")
        self._cpu_s, self._at_s = cpu_s, time.monotonic()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        self.write(START)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        result = yield
        self.write(item.nodeid)
        return result

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        self.write(END)


def pytest_configure(config: pytest.Config) -> None:
    worker, directory = os.environ.get("PYTEST_XDIST_WORKER"), os.environ.get(DIRECTORY)
    if worker is None and config.getoption("numprocesses", None):
        return  # it only deals out the tests
    os.environ.pop("PYTEST_ADDOPTS", None)  # not for runs that a test starts
    if directory is not None:
        out = Path(directory, f"{worker or 'main'}-{os.getpid()}.jsonl")
        config.pluginmanager.register(_Ledger(out, worker or "main"))
