"""The recorded requests of real clients, answered by us as Apache Kafka 4.4.0 answered them, and 4.3.1 before it.

Differences that are known stand in `known_differences.txt` with their reason; a line there that no longer differs fails
the test too, so that the list only shrinks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from oncelog.runtime.clock import WallClock
from oncelog.testing import Broker
from oncelog.testing import broker as testing_broker
from tests.conformance.golden.corpus import DATA, DATA_4_3, properties_of, scenario_of, warm_up
from tests.conformance.golden.known import judge
from tests.conformance.golden.replay import Replay, timestamps
from tests.peers.recorder import Event, load

_FIRST_RECORDING_NS: Final = 1_780_000_000 * 10**9
RECORDINGS: Final = sorted(DATA.glob("*.xz"))
OLDER_RECORDINGS: Final = sorted(DATA_4_3.glob("*.xz"))


def recorded_ns(events: Sequence[Event]) -> int:
    """When clients wrote the newest records of a recording, in nanoseconds since 1970; now if none has the time."""
    times = [timestamp * 1_000_000 for timestamp in timestamps(events)]
    return max((at for at in times if _FIRST_RECORDING_NS < at < time.time_ns()), default=time.time_ns())


@pytest.fixture
def broker(recording: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """As Apache Kafka was configured for the recording, without the defaults that suit other tests."""
    monkeypatch.setattr(testing_broker, "DEFAULTS", {"log.sync.policy": "none"})
    broker = Broker(properties_of(scenario_of(recording)))
    age_ns = time.time_ns() - recorded_ns(load(recording))
    # As of then: a week later each marker of ours would begin a segment (``segment.ms``) behind recorded batches.
    monkeypatch.setattr(broker, "_clock", WallClock(lambda: time.time_ns() - age_ns))
    with broker as running:
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
