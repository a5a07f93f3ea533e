"""The broker that a request has to go to where there are several: a partition's leader, a coordinator, each of them.

A client of one broker asks no question first: any connection will do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.client.aio.client import ANY, TRANSACTION_KEY, AsyncClient
from oncelog.client.errors import BrokerRefused
from oncelog.wire.message import Request, Response

R = TypeVar("R", bound=Response)


def has_several(client: AsyncClient) -> bool:
    """True if the client was told of several brokers to begin with."""
    return len(client.bootstrap) > 1


async def leader_of(client: AsyncClient, partition: TopicPartition) -> int:
    """The leader of a partition as the cluster has it now. Raises UnknownTopic, BrokerRefused."""
    if not has_several(client):
        return ANY
    await client.metadata([partition.topic])
    return await client.leader(partition)


async def transaction_coordinator_of(client: AsyncClient, transactional_id: str) -> int:
    """The coordinator of a transactional id as the cluster has it now."""
    if not has_several(client):
        return ANY
    client.forget_coordinator(transactional_id, TRANSACTION_KEY)
    return await client.coordinator(transactional_id, TRANSACTION_KEY)


async def ask_all(client: AsyncClient, message: Request[R], error_of: Callable[[R], int]) -> list[R]:
    """The answers of all brokers, none of which is still reading its logs where there are several."""
    if not has_several(client):
        return [await client.request(message)]
    await client.refresh()
    return [await _ask(client, message, broker, error_of) for broker in sorted(client.view.brokers)]


async def _ask(client: AsyncClient, message: Request[R], broker: int, error_of: Callable[[R], int]) -> R:
    async def attempt() -> R:
        response = await client.request(message, broker=broker)
        code = error_of(response)
        if code != ErrorCode.NONE:
            raise BrokerRefused(code, f"{type(message).__name__} to broker {broker}")
        return response

    return await client.retrying(attempt)
