"""The recorded requests of real clients, answered by us as Apache Kafka 4.3.1 answered them.

Differences that are known stand in `known_differences.txt` with their reason; a line there that no longer differs fails
the test too, so that the list only shrinks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from oncelog.testing import Broker
from tests.conformance.golden.corpus import BROKER_PROPERTIES, DATA, scenario_of, warm_up
from tests.conformance.golden.replay import Replay
from tests.peers.recorder import load

KNOWN: Final = Path(__file__).with_name("known_differences.txt")
_LINE: Final = re.compile(r"event \d+: (?P<api>\w+)(?: v\d+)?: (?P<what>[^:;]*)")
RECORDINGS: Final = sorted(DATA.glob("*.xz"))


def _known() -> dict[str, set[str]]:
    """Recording → what differs in it, as `API field`; `#` begins a reason."""
    known: dict[str, set[str]] = {}
    for line in KNOWN.read_text("utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            recording, what = line.split(None, 1)
            known.setdefault(recording, set()).add(what.strip())
    return known


def summary(line: str) -> str:
    """A difference without numbers of events, versions, ids: what `known_differences.txt` names."""
    found = _LINE.match(line)
    if found is None:
        return line
    path = re.sub(r"\[[^\]]*\]", "", found["what"]).strip()
    return f"{found['api']} {path}"


@pytest.fixture
def broker() -> Iterator[Broker]:
    """As Apache Kafka was configured for the recording."""
    with Broker(BROKER_PROPERTIES) as running:
        yield running


@pytest.mark.parametrize("recording", RECORDINGS, ids=[path.stem for path in RECORDINGS])
def test_the_answers_are_apache_kafkas(recording: Path, broker: Broker) -> None:
    known = _known().get(recording.stem, set())
    warm_up((broker.host, broker.port), scenario_of(recording))
    lines = list(Replay((broker.host, broker.port), load(recording)).run())
    unknown = [line for line in lines if summary(line) not in known]
    assert not unknown, "\n".join(unknown[:20])
    gone = known - {summary(line) for line in lines}
    assert not gone, f"no longer differs, take it from {KNOWN.name}: {sorted(gone)}"


def test_the_corpus_is_small() -> None:
    assert RECORDINGS
    assert sum(path.stat().st_size for path in RECORDINGS) < 2_000_000
