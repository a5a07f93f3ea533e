"""The pytest fixtures ``oncelog_broker`` and ``oncelog_cluster``, found through an entry point. Imports nothing until
one is used.

::

    def test_my_service(oncelog_broker):
        run_my_service(bootstrap_servers=oncelog_broker.bootstrap_servers)

One broker a session; it is reset (all topics and groups gone) after each test that used it. A cluster of three is a
test's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from oncelog.testing.broker import Broker
    from oncelog.testing.cluster.cluster import Cluster


@pytest.fixture(scope="session")
def oncelog_session_broker() -> Iterator[Broker]:
    """An in-process broker for the whole session, never reset."""
    from oncelog.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def oncelog_broker(oncelog_session_broker: Broker) -> Iterator[Broker]:
    """The session's broker, empty at the start of each test."""
    yield oncelog_session_broker
    oncelog_session_broker.reset()


@pytest.fixture
def oncelog_cluster() -> Iterator[Cluster]:
    """Three brokers of one cluster, for one test."""
    from oncelog.testing.cluster.cluster import Cluster

    with Cluster(3) as cluster:
        yield cluster
