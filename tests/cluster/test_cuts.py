"""A few rounds of the drills: `python -m tests.cluster.cuts`, `….prepared` and `….groups` make more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import prepared
from tests.cluster.cuts import Options, run

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.mark.parametrize("secured", [False, True])
def test_each_record_is_copied_once_and_in_order(tmp_path: Path, *, secured: bool) -> None:
    assert run(1, 5, tmp_path, Options(secured=secured)) == []


def test_librdkafka_goes_on_when_brokers_are_stopped_one_after_the_other(tmp_path: Path) -> None:
    """A group's coordinator that is gone from Metadata is one for which its producers wait for ever."""
    assert run(7, 6, tmp_path, Options(clients=["confluent"], kinds=["stop"])) == []


@pytest.mark.long
def test_clocks_that_are_most_of_a_minute_apart(tmp_path: Path) -> None:
    assert run(300, 4, tmp_path, Options(skew_s=25)) == []


def test_a_prepared_transaction_is_kept_whatever_happens_to_its_brokers(tmp_path: Path) -> None:
    assert prepared.run(2, 6, tmp_path) == []


@pytest.mark.long
def test_groups_go_on_from_what_they_have_committed() -> None:
    """In a process of its own: kafka-python drops sockets, which would be warned of in whatever test comes next."""
    command = [sys.executable, "-m", "tests.cluster.groups", "--seed", "5", "--rounds", "4"]
    drill = subprocess.run(command, capture_output=True, text=True, check=False)
    assert drill.returncode == 0, drill.stdout + drill.stderr


@pytest.mark.parametrize(
    "client", [pytest.param("java", marks=pytest.mark.java), pytest.param("franz-go", marks=pytest.mark.peer("go"))]
)
def test_each_record_is_copied_once_by_clients_of_other_languages(tmp_path: Path, client: str) -> None:
    assert run(3, 5, tmp_path, Options(clients=[client])) == []
