"""A group that processes in transactions is upgraded to the new protocol and back, while members are killed and frozen:
the result of each record is there once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster import rolling
from tests.interop.consistency import planted
from tests.kept.releases import RELEASE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # kafka-python's connections, left to the collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # the same, while collected
]
PYTHON_ALONE = rolling.Options(
    members=4,
    classic=("confluent-range", "oncelog", "aiokafka"),
    new=("confluent-consumer", "oncelog-consumer"),
    is_exactly_once=True,
)


@pytest.mark.long
def test_two_members_of_each_protocol(tmp_path: Path) -> None:
    few = rolling.Options(
        members=2,
        classic=("oncelog", "confluent-range"),
        new=("confluent-consumer", "oncelog-consumer"),
        is_exactly_once=True,
        session_ms=1_500,
    )
    assert rolling.run(5, tmp_path, few) == []


@pytest.mark.integration
@pytest.mark.long
def test_a_broker_that_takes_commits_of_former_members_is_found(tmp_path: Path) -> None:
    """Within three drills: the moment in which a member is frozen is not the seed's to say."""
    wrong = replace(PYTHON_ALONE, command=planted.command("ignore-the-generation"), session_ms=1_500)
    for seed in range(3):
        if any("several times" in line for line in rolling.run(seed, tmp_path / str(seed), wrong)):
            return
    pytest.fail("no duplicate in three drills")


@pytest.mark.integration
@pytest.mark.long
def test_coordinators_of_the_group_and_of_its_transactions_fail_too(tmp_path: Path) -> None:
    assert rolling.run(7, tmp_path, replace(PYTHON_ALONE, brokers=3)) == []


@pytest.mark.integration
def test_brokers_come_from_the_kept_release_and_go_back(tmp_path: Path) -> None:
    options = rolling.Options(
        members=2,
        classic=("oncelog", "confluent-range"),
        new=("confluent-consumer", "oncelog-consumer"),
        is_exactly_once=True,
        brokers=3,
        release=RELEASE,
    )
    assert rolling.run(3, tmp_path, options) == []


@pytest.mark.integration
@pytest.mark.peer("go")
def test_members_of_all_clients(tmp_path: Path) -> None:
    assert rolling.run(1, tmp_path, rolling.Options(members=10, is_exactly_once=True)) == []


@pytest.mark.integration
@pytest.mark.peer("go", "kafka-4.3.1", "kafka-4.4.0")
def test_java_members_stay_beside_classic_ones(tmp_path: Path) -> None:
    java = ["java 4.3.1 pattern", "java 4.4.0 consumer"]
    assert rolling.run(3, tmp_path, rolling.Options(members=4, java=java, is_exactly_once=True)) == []


@pytest.mark.integration
@pytest.mark.peer("kafka-4.3.1")
def test_the_drill_holds_with_apache_kafka(tmp_path: Path) -> None:
    assert rolling.run(1, tmp_path, replace(PYTHON_ALONE, kafka="4.3.1")) == []
