"""Groups of the new protocol and a mixed one move with their coordinator; nothing is lost, and no epoch goes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.groups import Options, run

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # kafka-python's connections, left to the collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # the same, while collected
]
GROUPS = ("confluent-consumer", "confluent-consumer-static", "oncelog-consumer", "mixed")
SEED = 59  # one coordinator is killed, one stopped, and one frozen


def test_members_of_the_new_protocol_outlive_their_coordinators(tmp_path: Path) -> None:
    assert run(SEED, 3, tmp_path, Options(groups=GROUPS)) == []
