"""A cluster in which versions of oncelog change: the next one knows one format of the tree more."""

from __future__ import annotations

from functools import partial

import pytest

from oncelog.core.controller.brokers.registration import Registration, RegistrationRefused
from oncelog.core.controller.brokers.tree_format import KNOWN_FORMATS
from oncelog.core.controller.image.model import TreeFormats
from tests.scenario.cluster.cluster import Cluster
from tests.scenario.cluster.replicated import assert_same, create_replicated, write
from tests.scenario.node import driver

NEXT = TreeFormats(KNOWN_FORMATS.oldest, KNOWN_FORMATS.newest + 1)


def restart_as(cluster: Cluster, broker_id: int, formats: TreeFormats, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a broker anew as the version that knows these formats."""
    cluster.kill(broker_id)
    with monkeypatch.context() as patched:
        patched.setattr(driver, "Registration", partial(Registration, tree_formats=formats))
        cluster.start(broker_id)


def formats_seen(cluster: Cluster) -> set[int]:
    return {item.node.cluster.image.tree_format for item in cluster.running}


def test_a_rolling_upgrade_and_one_that_comes_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(3)
    create_replicated(cluster.connect(1), [1, 2, 3])
    for broker_id in (3, 2):
        restart_as(cluster, broker_id, NEXT, monkeypatch)
        assert formats_seen(cluster) == {KNOWN_FORMATS.newest}, "both versions work side by side"
    write(cluster, 1, b"of both versions")
    restart_as(cluster, 3, KNOWN_FORMATS, monkeypatch)  # the way back is open
    assert formats_seen(cluster) == {KNOWN_FORMATS.newest}
    for broker_id in (3, 1):
        restart_as(cluster, broker_id, NEXT, monkeypatch)
    assert formats_seen(cluster) == {NEXT.newest}
    cluster.advance(2000)
    assert_same(cluster, 1, 2, 3)
    cluster.kill(1)
    with pytest.raises(RegistrationRefused, match="start this broker with the version of the other brokers"):
        cluster.start(1)
