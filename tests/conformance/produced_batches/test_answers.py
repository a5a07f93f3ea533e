"""Broken and odd batches are answered as Apache Kafka 4.4.0 answers them, but for the differences that are listed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from oncelog.testing import Broker
from tests.conformance.produced_batches.asking import GROUPS, Answers, ask_group
from tests.conformance.produced_batches.differences import DIFFERENCES, unexplained
from tests.conformance.produced_batches.record import ANSWERS
from tests.peers.apache_kafka import ApacheKafka

KAFKAS: Answers = json.loads(ANSWERS.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"log.sync.policy": "none"}) as running:
        yield running


@pytest.mark.slow
def test_the_answers_are_apache_kafkas(broker: Broker) -> None:
    assert set(KAFKAS) == set(GROUPS)
    used = set()
    for group in GROUPS:
        answers = ask_group(broker.bootstrap_servers, group)
        differ, explained = unexplained(group, KAFKAS[group], answers)
        assert not differ, f"{group}: case: (Apache Kafka's answer, ours)"
        assert KAFKAS[group].keys() == answers.keys()
        used |= explained
    assert [difference for difference in DIFFERENCES if difference not in used] == [], "they no longer differ"


@pytest.mark.slow
@pytest.mark.java
def test_apache_kafka_still_answers_so() -> None:
    with ApacheKafka() as kafka:
        for group in GROUPS:
            assert ask_group(kafka.bootstrap_servers, group) == KAFKAS[group], group
