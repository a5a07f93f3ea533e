"""``oncelog.admin.transactions`` as a library: the examples of its page run, and it does all that Java's Admin does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oncelog.admin import transactions
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.admin.transactions import (
    ListFilter,
    abort_transaction,
    describe_producers,
    describe_transaction,
    fence_producers,
    list_transactions,
    partitions_of,
)
from oncelog.admin.transactions.cluster_scan import Scope, scan
from oncelog.base.errors import ErrorCode
from oncelog.client.blocking import Client
from oncelog.client.errors import BrokerRefused
from oncelog.testing import Cluster
from tests.interop.admin.conftest import FAST
from tests.interop.admin.lab import ByHand, at
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[3] / "docs" / "hanging-transactions.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def test_the_examples_of_the_page_run(client: Client, servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    create_topic(client, NewTopic("library-orders"))
    late = ByHand(client, "payments-7")
    late.begin(at("library-orders"))
    late.end()
    late.write(at("library-orders"), timestamp_ms=1)  # long ago
    assert len(BLOCKS) == 2
    for block in reversed(BLOCKS):
        program = block.replace("kafka-1:9092", servers).replace('"orders"', '"library-orders"')
        exec(compile(program, str(PAGE), "exec"), {"__name__": "example"})  # our own page
    out = capsys.readouterr().out
    assert "library-orders-0" in out
    assert out.count("verdict='hanging'") == 1
    assert not scan(client, Scope(("library-orders",))).transactions, "the last example ends it"


def test_every_request_of_javas_admin(client: Client) -> None:
    create_topic(client, NewTopic("library", partitions=2))
    producer = ByHand(client, "library-1")
    producer.begin(at("library"))
    [row] = list_transactions(client, ListFilter(states=("Ongoing",), pattern="library-.")).rows
    assert list_transactions(client, ListFilter(producer_ids=(producer.producer_id,))).rows == [row]
    assert list_transactions(client, ListFilter(pattern="library-.", longer_than_ms=3_600_000)).rows == []
    partitions = partitions_of(client, Scope(("library",)))
    [opened] = describe_producers(client, partitions, open_only=True).rows
    assert describe_producers(client, partitions, broker=opened.leader, open_only=True).rows == [opened]

    [fenced] = fence_producers(client, ["library-1"])
    assert (fenced.producer_id, fenced.producer_epoch > producer.epoch) == (producer.producer_id, True)
    wait_until(lambda: describe_transaction(client, "library-1").state == "Empty", "the abort")
    with pytest.raises(BrokerRefused) as refusal:
        producer.add(at("library", 1))
    assert refusal.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)

    other = ByHand(client, "library-2")
    other.begin(at("library", 1))
    other.end()
    other.write(at("library", 1))  # after the marker
    [late] = describe_producers(client, [at("library", 1)], open_only=True).rows
    abort_transaction(
        client, at("library", 1), producer_id=late.producer_id, producer_epoch=late.producer_epoch, coordinator_epoch=0
    )
    wait_until(lambda: not describe_producers(client, [at("library", 1)], open_only=True).rows, "the marker")


def test_producers_of_a_follower() -> None:
    with Cluster(2) as cluster, Client(cluster.bootstrap_servers, config=FAST) as client:
        create_topic(client, NewTopic("both", assignment={0: [1, 2]}))
        create_topic(client, NewTopic("first", assignment={0: [1]}))
        producer = ByHand(client, "follower-1")
        producer.begin(at("both"), at("first"))

        def of_the_follower() -> list[tuple[int, int | None]]:
            rows = describe_producers(client, [at("both")], broker=2).rows
            return [(row.leader, row.start_offset) for row in rows]

        wait_until(lambda: of_the_follower() == [(2, 0)], "the copy")
        refused = describe_producers(client, [at("first")], broker=2)
        assert (refused.rows, len(refused.unanswered)) == ([], 1)
        producer.end()


def test_every_function_has_a_docstring() -> None:
    functions = [name for name in transactions.__all__ if name[0].islower()]
    assert [name for name in functions if not getattr(transactions, name).__doc__] == []
