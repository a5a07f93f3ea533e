"""Apache Kafka's TransactionsCommand, unmodified, finds and ends on our broker what ours finds there."""

from __future__ import annotations

import pytest

from oncelog.admin.transactions.cluster_scan import Scope, find_hanging
from oncelog.client.blocking import Client
from oncelog.testing import Broker
from tests.interop.admin.lab import WITHOUT_VERIFICATION, ByHand, at
from tests.interop.admin.test_hanging import HOUR_MS, long_ago, make_topic
from tests.peers.apache_kafka import KafkaTools
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.java]


def test_it_finds_what_ours_finds_and_ends_it() -> None:
    with Broker({**WITHOUT_VERIFICATION, "node.id": "1"}) as broker, Client(broker.bootstrap_servers) as client:
        make_topic(client, "jh", 3)
        late = ByHand(client, "jh-late")
        late.begin(at("jh", 0), timestamp_ms=long_ago())
        late.end()
        start = late.write(at("jh", 0), timestamp_ms=long_ago())
        late.begin(at("jh", 1), timestamp_ms=long_ago())
        drip = ByHand(client, "jh-drip", timeout_ms=900_000)
        drip.begin(at("jh", 2), timestamp_ms=long_ago())
        tools = KafkaTools(broker.bootstrap_servers)

        def found(*arguments: str) -> list[list[str]]:
            ran = tools.run("kafka-transactions", "find-hanging", *arguments)
            assert ran.returncode == 0, ran.stderr
            return [line.split() for line in ran.stdout.splitlines()[1:] if line.strip()]

        (theirs,) = found("--broker-id", "1")
        (ours,) = find_hanging(client, Scope(("jh",)))
        assert [theirs[0], *map(int, theirs[1:4]), int(theirs[5])] == [
            ours.topic,
            ours.partition,
            ours.producer_id,
            ours.producer_epoch,
            ours.start_offset,
        ]
        assert (ours.start_offset, ours.transactional_id) == (start, "jh-late")
        assert HOUR_MS <= (ours.age_ms or 0) <= HOUR_MS + 60_000
        aborted = tools.run(
            "kafka-transactions", "abort", "--topic", "jh", "--partition", "0", "--start-offset", str(start)
        )
        assert aborted.returncode == 0, aborted
        wait_until(lambda: not find_hanging(client, Scope(("jh",))), "the end of the hanging transaction")
        assert found("--topic", "jh", "--max-transaction-timeout", "0") == []
