"""An operation has the form of the client that it is called with."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import TYPE_CHECKING, assert_type

import pytest

from oncelog.client.errors import UnknownTopic
from oncelog.client.programs import Cluster, Program, operation
from tests.unit.client.programs.fake_brokers import CONFIG, AsyncRunner, BlockingRunner, FakeBrokers

if TYPE_CHECKING:
    from oncelog.client.aio import AsyncClient
    from oncelog.client.blocking import Client


@operation
def count_partitions(cluster: Cluster, topic: str, *, factor: int = 1) -> Program[int]:
    """The number of partitions, multiplied."""
    info = yield from cluster.topic(topic)
    return factor * len(info.partitions)


@operation
def count_both(cluster: Cluster, text: str, other: str) -> Program[int]:
    """The number of partitions of two topics."""
    first = yield from count_partitions(cluster, text)
    second = yield from count_partitions(cluster, other, factor=2)
    return first + second


def clients() -> tuple[BlockingRunner, AsyncRunner]:
    brokers = FakeBrokers()
    brokers.leaders = {"a": {0: 1, 1: 2}, "b": {0: 1}}
    return BlockingRunner(brokers), AsyncRunner(brokers)


async def awaiting(awaitable: Awaitable[int]) -> int:
    return await awaitable


def test_the_result_its_awaitable_or_the_program() -> None:
    blocking, asyncio = clients()
    assert count_both(blocking, "a", "b") == 4
    assert asyncio.loop.run(awaiting(count_both(asyncio.client, "a", other="b"))) == 4
    assert blocking.run(count_partitions(blocking.cluster, "a", factor=3)) == 6


def test_both_forms_raise_the_same() -> None:
    blocking, asyncio = clients()
    with pytest.raises(UnknownTopic):
        count_partitions(blocking, "absent")
    with pytest.raises(UnknownTopic):
        asyncio.loop.run(awaiting(count_partitions(asyncio.client, "absent")))
    assert CONFIG.unknown_topic_grace_ms <= asyncio.now_ms()


def test_users_see_the_blocking_form() -> None:
    expected = "(client: 'Client', /, topic: 'str', *, factor: 'int' = 1) -> 'int'"
    assert str(inspect.signature(count_partitions)) == expected
    assert inspect.getdoc(count_partitions) == "The number of partitions, multiplied."


if TYPE_CHECKING:

    def types(client: Client, async_client: AsyncClient, cluster: Cluster) -> None:
        assert_type(count_partitions(client, "a"), int)
        assert_type(count_partitions(async_client, "a", factor=2), Awaitable[int])
        assert_type(count_partitions(cluster, "a"), Program[int])
        count_partitions(client, 1)  # type: ignore[call-overload]  # a topic is named
