"""Groups of the new protocol and mixed ones: coordinators fail, and clients of all kinds convert them by turns."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import groups, rolling
from tests.peers.jars import KAFKA_VERSIONS

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # kafka-python's connections, left to the collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # the same, while collected
]
GROUPS = ("confluent-consumer", "confluent-consumer-static", "oncelog-consumer", "mixed")
SEED = 59  # one coordinator is killed, one stopped, and one frozen


def test_members_of_the_new_protocol_outlive_their_coordinators(tmp_path: Path) -> None:
    """No record is lost, and no epoch goes back."""
    assert groups.run(SEED, 3, tmp_path, groups.Options(groups=GROUPS)) == []


@pytest.mark.peer("go")
def test_a_group_of_many_clients_is_upgraded_and_downgraded_while_members_are_killed_and_frozen(tmp_path: Path) -> None:
    assert rolling.run(1, tmp_path, rolling.Options(members=5)) == []


@pytest.mark.peer("go", *(f"kafka-{version}" for version in KAFKA_VERSIONS))
def test_java_members_of_both_releases_share_a_group_with_classic_members_of_others(tmp_path: Path) -> None:
    """One subscribes by an expression; both commit asynchronously."""
    java = [
        f"java {version} {protocol}" for version, protocol in zip(KAFKA_VERSIONS, ("pattern", "consumer"), strict=True)
    ]
    assert rolling.run(3, tmp_path, rolling.Options(members=4, java=java)) == []
