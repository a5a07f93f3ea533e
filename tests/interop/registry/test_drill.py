"""Instances are killed and frozen while clients register, over brokers of oncelog and of Apache Kafka."""

from __future__ import annotations

import pytest

from oncelog.testing import Broker
from tests.interop.registry.drill import run
from tests.peers.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.slow, pytest.mark.integration]


def test_no_id_is_given_twice_and_no_registration_is_lost() -> None:
    with Broker() as broker:
        answered, problems = run(broker.bootstrap_servers, seed=1, rounds=6)
    assert answered > 100
    assert problems == []


@pytest.mark.java
def test_the_same_over_apache_kafka() -> None:
    with ApacheKafka() as kafka:
        answered, problems = run(kafka.bootstrap_servers, seed=2, rounds=4)
    assert answered > 50
    assert problems == []
