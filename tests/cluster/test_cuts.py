"""A few cuts of transactions, with and without TLS and logins; `python -m tests.cluster.cuts` makes more."""

from __future__ import annotations

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


def test_clocks_that_are_most_of_a_minute_apart(tmp_path: Path) -> None:
    assert run(300, 4, tmp_path, Options(skew_s=25)) == []


def test_a_prepared_transaction_is_kept_whatever_happens_to_its_brokers(tmp_path: Path) -> None:
    assert prepared.run(2, 6, tmp_path) == []
