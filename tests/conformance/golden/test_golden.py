"""The recorded requests of real clients, answered by us as Apache Kafka 4.4.0 answered them, and 4.3.1 before it.

Differences that are known stand in `known_differences.txt` with their reason; a line there that no longer differs fails
the test too, so that the list only shrinks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from oncelog.testing import Broker
from oncelog.testing import broker as testing_broker
from tests.conformance.golden.corpus import DATA, DATA_4_3, properties_of, scenario_of, warm_up
from tests.conformance.golden.known import judge
from tests.conformance.golden.replay import Replay
from tests.peers.recorder import load

RECORDINGS: Final = sorted(DATA.glob("*.xz"))
OLDER_RECORDINGS: Final = sorted(DATA_4_3.glob("*.xz"))


@pytest.fixture
def broker(recording: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """As Apache Kafka was configured for the recording, without the defaults that suit other tests."""
    monkeypatch.setattr(testing_broker, "DEFAULTS", {"log.sync.policy": "none"})
    with Broker(properties_of(scenario_of(recording))) as running:
        yield running


@pytest.mark.parametrize("recording", RECORDINGS, ids=[path.stem for path in RECORDINGS])
def test_the_answers_are_apache_kafkas(recording: Path, broker: Broker) -> None:
    warm_up((broker.host, broker.port), scenario_of(recording))
    judge(recording.stem, list(Replay((broker.host, broker.port), load(recording)).run()))


@pytest.mark.integration
@pytest.mark.parametrize("recording", OLDER_RECORDINGS, ids=[path.stem for path in OLDER_RECORDINGS])
def test_the_answers_are_those_of_apache_kafka_4_3(recording: Path, broker: Broker) -> None:
    address = (broker.host, broker.port)
    warm_up(address, scenario_of(recording))
    judge(f"4.3.1.{recording.stem}", list(Replay(address, load(recording), is_older=True).run()))


def test_the_corpus_is_small() -> None:
    assert RECORDINGS
    assert sum(path.stat().st_size for path in (*RECORDINGS, *OLDER_RECORDINGS)) < 2_000_000
