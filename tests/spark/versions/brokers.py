"""Brokers that die under a query: one as a process of its own, or a cluster of three of which one dies at a time."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from oncelog.testing.cluster.cluster import Cluster
from tests.peers.oncelog_serve import OncelogServe


class Brokers(Protocol):
    """Brokers that clients reach, and that may be killed."""

    @property
    def bootstrap_servers(self) -> str:
        """Their addresses, which stay."""

    def kill(self, entropy: random.Random) -> str:
        """End one as ``kill -9`` does; says which."""

    def start(self) -> None:
        """Start it again, on what it left."""


class OneBroker:
    """``oncelog serve``."""

    def __init__(self, process: OncelogServe) -> None:
        self._process = process
        self.bootstrap_servers = process.bootstrap_servers

    def kill(self, entropy: random.Random) -> str:
        """See ``Brokers``."""
        self._process.kill()
        return "the broker"

    def start(self) -> None:
        """See ``Brokers``."""
        self._process.start()


class ThreeBrokers:
    """A cluster with every topic on all three."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._down = cluster, 0
        self.bootstrap_servers = cluster.bootstrap_servers

    def kill(self, entropy: random.Random) -> str:
        """See ``Brokers``."""
        self._down = entropy.choice(sorted(self._cluster.brokers))
        self._cluster.kill(self._down)
        return f"broker {self._down} of three"

    def start(self) -> None:
        """See ``Brokers``."""
        self._cluster.restart(self._down)


@contextmanager
def running(count: int, properties: Mapping[str, str]) -> Iterator[Brokers]:
    """One broker or three."""
    if count == 1:
        with OncelogServe(properties=properties) as process:
            yield OneBroker(process)
        return
    with Cluster(count, properties) as cluster:
        yield ThreeBrokers(cluster)
