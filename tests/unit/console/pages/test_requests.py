"""Requests of a page to brokers: no more than the commands that show the same, whatever the machine does beside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client
from oncelog.client.blocking.link import Link
from oncelog.console.page import PageRequest
from oncelog.console.pages import explain, groups, producers, topics, transactions
from oncelog.console.query import Query
from oncelog.console.settings import Settings
from oncelog.testing.broker import Broker

ASKED = {
    topics.read_all: {"DescribeLogDirs": 1, "ListOffsets": 3, "DescribeConfigs": 1},
    topics.read_one: {"DescribeLogDirs": 1, "ListOffsets": 3, "DescribeConfigs": 1},
    transactions.read_open: {"DescribeProducers": 1},
    groups.read_all: {"ListGroups": 1},
    producers.read: {"DescribeProducers": 1},
    explain.read: {"ListOffsets": 4, "DescribeConfigs": 1},
}
"""The requests of each page, of a client that knows the cluster's leaders; it may ask for them once more."""
Read = Callable[[Client, PageRequest], Mapping[str, Any]]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The requests that are sent, by the names of their APIs."""
    counts: Counter[str] = Counter()
    submit = Link.submit

    def counting(link: Link, message: Any, *arguments: Any, **named: Any) -> int:
        counts[type(message).__name__.removesuffix("Request")] += 1
        return submit(link, message, *arguments, **named)

    monkeypatch.setattr(Link, "submit", counting)
    return counts


@pytest.mark.parametrize("read", ASKED, ids=lambda read: f"{read.__module__.rpartition('.')[2]}.{read.__name__}")
def test_a_page_asks_each_thing_once(broker: Broker, sent: Counter[str], read: Read) -> None:
    name = f"asked-{read.__module__.rpartition('.')[2]}-{read.__name__.replace('_', '-')}"
    parameters = {"filter": name, "name": name, "topic": name, "kind": "topic"}
    request = PageRequest(Query(parameters), Settings(broker.bootstrap_servers))
    with Client(broker.bootstrap_servers) as client:
        create_topic(client, NewTopic(name, partitions=3, replication_factor=1))
        read(client, request)
        sent.clear()
        read(client, PageRequest(request.query, request.settings))
    assert sent.pop("Metadata", 0) <= 1
    assert dict(sent) == ASKED[read]
