"""The drill of docs/mirror.md: everybody moves from one cluster to the other and back, and nobody loses or repeats."""

from __future__ import annotations

import asyncio
import re

import pytest

from oncelog.client.blocking import FetchSettings, GroupConsumer, read_fetched
from oncelog.mirror.translation import translate
from tests.interop.mirror.conftest import Side, mirror, settings_of

pytestmark = pytest.mark.slow
GROUP = "billing"


def read(side: Side, topics: list[str], count: int) -> list[str]:
    """Read ``count`` records as the group, committing each."""
    values: list[str] = []
    fetch = FetchSettings(read_committed=True)
    with GroupConsumer(side.client, GROUP, topics, fetch=fetch) as consumer:
        while len(values) < count:
            for fetched in consumer.poll():
                for record in read_fetched(fetched, read_committed=True):
                    if len(values) < count:
                        values.append((record.value or b"").decode())
                        consumer.processed(fetched.partition, record.offset + 1)
    return values


def test_over_and_back(source: Side, target: Side) -> None:
    a, c = source, target
    topics = re.compile("orders")
    a.create("orders")
    a.send("orders", "1", "2")
    a.transact("orders", "aborted", commit=False)
    a.transact("orders", "3", "4")
    got = read(a, ["orders"], 3)
    mirror(a, c, topics=topics)
    a.send("orders", "5")

    c.create("orders")
    c.send("orders", "6")
    got += read(c, ["a.orders", "orders"], 2)
    mirror(a, c, topics=topics)
    got += read(c, ["a.orders", "orders"], 1)
    assert sorted(got) == ["1", "2", "3", "4", "5", "6"]

    c.send("orders", "7")
    engine = mirror(c, a, alias="c", topics=topics)
    assert a.values("c.orders") == ["6", "7"]
    assert not engine.progress.cycles
    settings = settings_of(a, c)
    asyncio.run(translate(settings.source, settings.target, re.compile(GROUP), back=True, apply=True, force=False))
    a.send("orders", "8")
    assert sorted(read(a, ["orders", "c.orders"], 2)) == ["7", "8"]
    assert a.values("orders", start=a.committed(GROUP, "orders")) == []
    assert a.values("c.orders", start=a.committed(GROUP, "c.orders")) == []
