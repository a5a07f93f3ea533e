"""A commit that comes after the coordinator has aborted the transaction for its time-out (KAFKA-20785).

The producer is fenced, so that the application begins again with another instance. At Apache Kafka 4.4.0 a Java
producer of Transactions V2 gets InvalidTxnStateException instead, which ends the application.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

import pytest

from oncelog.admin.transactions.transactional_ids import describe_transactions
from oncelog.client.blocking import Client
from oncelog.testing import Broker
from tests.interop.consistency.copier import CLIENTS
from tests.interop.consistency.copying_client import Abortable, CopyingClient, GiveUp, Role
from tests.interop.consistency.reading import drain, fill
from tests.peers.apache_kafka import ApacheKafka
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

ID: Final = "late"
TIMEOUT_MS: Final = 6000
"""More than the Java copier's request.timeout.ms, as its delivery.timeout.ms has to be."""
QUICK: Final = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}


def copier_of(client: str, bootstrap: str) -> CopyingClient:
    module, name = CLIENTS[client]
    made: Callable[..., CopyingClient] = getattr(importlib.import_module(f"tests.interop.consistency.{module}"), name)
    return made(Role(bootstrap, ID, 0, 1, TIMEOUT_MS), lambda value, offset: None)


def begin_and_write(copier: CopyingClient, value: str) -> None:
    copier.start()
    copier.begin()
    copier.write(0, value)
    copier.flush()


def state_of(bootstrap: str) -> str:
    with Client(bootstrap) as client:
        described: Any = describe_transactions(client, [ID]).rows[ID]
    return str(described.state)


@pytest.mark.parametrize(
    ("client", "error"),
    [
        pytest.param("java", "ProducerFencedException", marks=pytest.mark.java),
        pytest.param("franz-go", "PRODUCER_FENCED", marks=pytest.mark.peer("go")),
        ("confluent", "fenced"),
        ("oncelog", "PRODUCER_FENCED"),
    ],
)
def test_the_producer_is_fenced_and_another_begins_again(client: str, error: str) -> None:
    with Broker(QUICK, virtual_time=True) as broker:
        bootstrap = broker.bootstrap_servers
        fill(bootstrap, 1, 1)
        with closing(copier_of(client, bootstrap)) as late:
            begin_and_write(late, "late")
            broker.advance(2 * TIMEOUT_MS)
            wait_until(lambda: state_of(bootstrap) == "CompleteAbort", "the abort", poll_s=0.05)
            with pytest.raises(GiveUp, match=error):
                late.commit()
        with closing(copier_of(client, bootstrap)) as again:
            begin_and_write(again, "again")
            again.commit()
        assert [record.value for record in drain(bootstrap, 0)] == ["again"]


@pytest.mark.java
def test_apache_kafka_ends_the_java_producer() -> None:
    with ApacheKafka(properties=QUICK) as kafka:
        bootstrap = kafka.bootstrap_servers
        fill(bootstrap, 1, 1)
        with closing(copier_of("java", bootstrap)) as late:
            begin_and_write(late, "late")
            wait_until(lambda: state_of(bootstrap) == "CompleteAbort", "the abort", poll_s=0.2)
            with pytest.raises((GiveUp, Abortable), match="InvalidTxnStateException"):
                late.commit()
