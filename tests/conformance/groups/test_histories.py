"""A thousand random histories of groups, beside Apache Kafka's own group coordinator: about 25 seconds."""

from __future__ import annotations

import pytest

from tests.conformance.groups.histories import History
from tests.conformance.judge import judge_of_groups

pytestmark = [pytest.mark.java, pytest.mark.peer("group-judge"), pytest.mark.slow]


@pytest.mark.parametrize("with_classic", [False, True])
@pytest.mark.parametrize("by_regex", [False, True])
def test_histories_are_apache_kafkas(by_regex: bool, with_classic: bool) -> None:
    with judge_of_groups() as judge:
        for seed in range(250):
            History(judge, seed, by_regex=by_regex, with_classic=with_classic).run()
