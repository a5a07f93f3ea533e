"""Random histories of share partitions, beside Apache Kafka's own: about 25 seconds."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conformance.judge import judge_of_share_partitions
from tests.conformance.share.histories import History

pytestmark = [pytest.mark.java, pytest.mark.peer("share-judge"), pytest.mark.peer("kafka-4.4.0"), pytest.mark.slow]


def test_histories_are_apache_kafkas() -> None:
    events: Counter[str] = Counter()
    with judge_of_share_partitions() as judge:
        for seed in range(250):
            History(judge, seed, events).run()
    # The histories reach what they are about.
    assert min(events[name] for name in ("last deliveries", "dead letters", "locks expired", "write failed")) > 100
