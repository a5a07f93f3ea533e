"""A thousand random histories of consumer groups, beside Apache Kafka's own group coordinator."""

from __future__ import annotations

import pytest

from tests.conformance.groups.histories import History
from tests.conformance.groups.judge import Judge

pytestmark = [pytest.mark.java, pytest.mark.peer("group-judge"), pytest.mark.slow]


@pytest.mark.parametrize("by_regex", [False, True])
def test_histories_are_apache_kafkas(by_regex: bool) -> None:
    with Judge() as judge:
        for seed in range(500):
            History(judge, seed, by_regex=by_regex).run()
