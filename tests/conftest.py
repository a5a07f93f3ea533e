"""Shared by every test run: Hypothesis profiles, tests that need what is not here, and the order of what is slow.

The rule: nothing is fetched or built while tests run. What comes from other registries than PyPI is fetched before, by
`make test-peers`; a test marked ``java`` or ``peer`` whose supply is not there is skipped, saying which.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, settings

from tests.peers import plain_platform
from tests.peers.child_environment import for_child_processes
from tests.temporary_files import keep_in_memory

if TYPE_CHECKING:
    from tests.peers.zookeeper import ZooKeeper

keep_in_memory()
if plain_platform.is_requested():
    plain_platform.install()
    for_child_processes(os.environ)

settings.register_profile("oncelog", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("long", settings.get_profile("oncelog"), max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "oncelog"))


_SPARK: Final = "tests/spark/"
_ROOMS: Final = (
    "tests/browser/",
    "tests/spark/connect/",
    _SPARK,
    "tests/unit/spark/targets/test_exactly_once.py",
)
"""Tests that share what is dear to start: a browser, a JVM with Spark in it, an object store."""
_OWN_JVMS: Final = ("tests/spark/cluster/", "tests/spark/jobs/test_stream_command.py")
"""Of Spark's tests those that start all their sessions in other processes."""
_NO_JVMS: Final = (
    "tests/spark/sink/test_changes.py",
    "tests/spark/sink/test_tasks.py",
    "tests/spark/source/test_range_reader.py",
)
"""Of Spark's tests those without a session: for the workers that do not have it."""

gc.disable()
"""Until all tests are collected (`pytest_collection_finish`): nearly all objects made before that stay, and traversing
them again and again took a quarter of the time that each worker needed to collect."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A run in the background of a shell without job control: every program that a test interrupts would go on.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    # A run under nohup: this process goes on ignoring it, but programs that it starts do not inherit that.
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """A ZooKeeper server; each test has a path of its own in it."""
    from tests.peers.zookeeper import ZooKeeper

    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def short_departures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers of this process list a departed broker for a moment and not for 5 s, which is for librdkafka: for tests
    that wait until it is no longer listed."""
    from oncelog.node.cluster import failed_brokers

    monkeypatch.setattr(failed_brokers, "DEPARTED_MS", 100)


def _supplies(item: pytest.Item) -> Iterator[str]:
    """The names, in `tests.peers.fetch.SUPPLIES`, of what a test needs."""
    if item.get_closest_marker("java"):
        yield "kafka"
    for marker in item.iter_markers("peer"):
        yield from marker.args


def _missing(item: pytest.Item) -> str | None:
    names = list(_supplies(item))
    if not names:
        return None
    from tests.peers.fetch import SUPPLIES

    return next((reason for name in names if (reason := SUPPLIES[name].missing())), None)


@pytest.hookimpl(tryfirst=True)  # behind the shuffling, which wraps this
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what lacks its supplies, and begin with Spark's tests, which take longest; slow ones follow, so that no
    worker is left alone with one at the end."""
    for item in items:
        reason = _missing(item)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
    items.sort(key=lambda item: (not item.nodeid.startswith(_SPARK), item.get_closest_marker("slow") is None))


def pytest_collection_finish() -> None:
    """Leave modules and collected tests, a few hundred thousand objects that stay, out of every later collection of
    garbage: traversing them anew was a tenth of the time that simulations take. A fifth of them is garbage, and left
    where it is: to look for it would take each worker half a second."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Collect the sockets that a library leaves to the collector while the test's own filter holds: whatever test is
    next would be warned of them."""
    yield
    if any("ResourceWarning" in words for mark in item.iter_markers("filterwarnings") for words in mark.args):
        gc.collect()


def pytest_unconfigure() -> None:
    """Let them be collected at the end: libraries in C report as leaked what is still there."""
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """The tests of a room in one worker, which starts once what they share; the others one by one where there is
    room."""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class RoomsInOneWorker(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(_OWN_JVMS):
                return nodeid
            if nodeid.startswith(_NO_JVMS):
                return nodeid.partition("::")[0]
            return next((room for room in _ROOMS if nodeid.startswith(room)), nodeid)

    return RoomsInOneWorker(config, log)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say how to repeat the order and the random values of this run, which ``-q`` does not."""
    terminalreporter.write_line(f"repeat it: --randomly-seed={config.getoption('randomly_seed', None)}")
