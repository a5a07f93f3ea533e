"""Three brokers of ours answer in every conversation as three of Apache Kafka 4.4.0 did.

Differences that are known stand in `golden/known_differences.txt`, under `cluster.` and the conversation's name.
"""

from __future__ import annotations

import pytest

from tests.conformance.golden.cluster.clusters import OurBrokers
from tests.conformance.golden.cluster.comparison import compared
from tests.conformance.golden.cluster.conversations import CONVERSATIONS
from tests.conformance.golden.cluster.corpus import DATA, recording_of
from tests.conformance.golden.cluster.record import held
from tests.conformance.golden.known import judge
from tests.peers.recorder import load

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_departures")]


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_answers_are_apache_kafkas(name: str) -> None:
    with OurBrokers() as brokers:
        message = held(name, brokers)
    judge(f"cluster.{name}", list(compared(load(recording_of(name)), message)))


def test_every_recording_has_its_conversation() -> None:
    assert {path.stem for path in DATA.glob("*.xz")} == set(CONVERSATIONS)
