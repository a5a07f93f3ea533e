"""A cluster where late batches are taken: ours in this process, and Apache Kafka beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncelog.client.blocking import Client, ClientConfig
from oncelog.client.blocking.system import THIS_MACHINE, ThisMachine
from oncelog.testing import Broker
from tests.interop.admin.lab import WITHOUT_VERIFICATION
from tests.peers.apache_kafka import ApacheKafka

QUICK_CLEANER = {"log.cleaner.backoff.ms": "100"}
"""Compaction soon after there is something to compact; for topics that are compacted."""
FAST = ClientConfig(retry_backoff_ms=10, retry_timeout_ms=20_000, unknown_topic_grace_ms=3_000)


class ShortPauses(ThisMachine):
    """The pauses after which ``explain`` looks again are short: nothing of these brokers changes by itself later."""

    def sleep(self, milliseconds: float) -> None:
        super().sleep(min(milliseconds, 500))


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """Apache Kafka with verification off. Modules run in random order, so it stays until the end of the run."""
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), properties=WITHOUT_VERIFICATION | QUICK_CLEANER) as one:
        yield one


@pytest.fixture(params=["oncelog", pytest.param("kafka", marks=pytest.mark.java)])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """The bootstrap servers of one, then the other."""
    if request.param == "kafka":
        yield request.getfixturevalue("kafka").bootstrap_servers
        return
    own = {"node.id": "1", "transaction.two.phase.commit.enable": "true"}
    with Broker({**WITHOUT_VERIFICATION, **QUICK_CLEANER, **own}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def client(servers: str, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of it."""
    is_ours = request.node.callspec.params["servers"] == "oncelog"
    with Client(servers, config=FAST, system=ShortPauses() if is_ours else THIS_MACHINE) as opened:
        yield opened
