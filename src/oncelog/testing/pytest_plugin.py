"""The pytest fixtures ``oncelog_broker`` and ``oncelog_cluster``, found through an entry point. Imports are lazy.

A session has one broker, and one per kind of security in use (the marker ``oncelog``, or indirect parameters); each is
reset after each test that used it. A cluster of three is made for each test. See docs/testing-your-application.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from oncelog.testing.broker import Broker
    from oncelog.testing.cluster.cluster import Cluster

_MARK = "oncelog"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{_MARK}(security=None): the security of oncelog_broker and oncelog_cluster")


@pytest.fixture(scope="session")
def oncelog_session_broker() -> Iterator[Broker]:
    """An in-process broker for the whole session, never reset."""
    from oncelog.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def _oncelog_secured_brokers() -> Iterator[Callable[[str], Broker]]:
    """Returns the session's broker for a kind of security; starts it on first use."""
    from oncelog.testing.broker import Broker

    started: dict[str, Broker] = {}
    with ExitStack() as stack:

        def broker_of(security: str) -> Broker:
            if security not in started:
                started[security] = stack.enter_context(Broker(security=security))
            return started[security]

        yield broker_of


@pytest.fixture
def oncelog_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The session's broker, empty at the start of each test; with security if the test requests it."""
    security = _security(request)
    if security is None:
        broker: Broker = request.getfixturevalue("oncelog_session_broker")
    else:
        broker = request.getfixturevalue("_oncelog_secured_brokers")(security)
    yield broker
    broker.reset()


@pytest.fixture
def oncelog_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three brokers of one cluster, for one test; with security if the test requests it."""
    from oncelog.testing.cluster.cluster import Cluster

    with Cluster(3, security=_security(request)) as cluster:
        yield cluster


def _security(request: pytest.FixtureRequest) -> str | None:
    # The requested kind of security: an indirect parameter, or the closest mark.
    security = getattr(request, "param", None)
    if security is None:
        mark = request.node.get_closest_marker(_MARK)
        if mark is None:
            return None
        if mark.args or set(mark.kwargs) - {"security"}:
            raise pytest.UsageError(f"@pytest.mark.{_MARK} accepts security=… only")
        security = mark.kwargs.get("security")
    if security is not None and not isinstance(security, str):
        raise pytest.UsageError(f"security must be a text such as 'scram', got {security!r}")
    return security
