"""The pytest fixtures ``oncelog_broker`` and ``oncelog_cluster``, found through an entry point. Imports nothing until
one is used.

::

    def test_my_service(oncelog_broker):
        run_my_service(bootstrap_servers=oncelog_broker.bootstrap_servers)

    @pytest.mark.oncelog(security="scram")
    def test_my_service_logs_in(oncelog_broker):
        oncelog_broker.add_user("service", "secret")

One broker a session, and one for each kind of security that tests ask for; it is reset (all topics, groups and users
gone) after each test that used it. A cluster of three is a test's own. ``security`` is that of
:class:`oncelog.testing.Broker`; all kinds in turn are
``@pytest.mark.parametrize("oncelog_broker", ["scram", "mtls"], indirect=True)``.
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
    """Make the mark known."""
    config.addinivalue_line("markers", f"{_MARK}(security=None): the security of oncelog_broker and oncelog_cluster")


@pytest.fixture(scope="session")
def oncelog_session_broker() -> Iterator[Broker]:
    """An in-process broker for the whole session, never reset."""
    from oncelog.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def _oncelog_secured_brokers() -> Iterator[Callable[[str], Broker]]:
    """Gives the session's broker of a kind of security, started when it is first asked for."""
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
    """The session's broker, empty at the start of each test; with security where the test asks for it."""
    security = _security(request)
    if security is None:
        broker: Broker = request.getfixturevalue("oncelog_session_broker")
    else:
        broker = request.getfixturevalue("_oncelog_secured_brokers")(security)
    yield broker
    broker.reset()


@pytest.fixture
def oncelog_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three brokers of one cluster, for one test; with security where the test asks for it."""
    from oncelog.testing.cluster.cluster import Cluster

    with Cluster(3, security=_security(request)) as cluster:
        yield cluster


def _security(request: pytest.FixtureRequest) -> str | None:
    """The kind of security that a test asks for, by an indirect parameter or by the mark nearest to it."""
    given = getattr(request, "param", None)
    if given is None:
        mark = request.node.get_closest_marker(_MARK)
        if mark is None:
            return None
        if mark.args or set(mark.kwargs) - {"security"}:
            raise pytest.UsageError(f"@pytest.mark.{_MARK} takes security=…, and nothing else")
        given = mark.kwargs.get("security")
    if given is not None and not isinstance(given, str):
        raise pytest.UsageError(f"oncelog's security is a word such as 'scram', not {given!r}")
    return given
