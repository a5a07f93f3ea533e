"""The end of a simulation, after all faults are repaired: asks the brokers for the state that the liveness rules check,
and drains every topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.positions import FetchSettings
from oncelog.sim.checkers.history import SeenRecord
from oncelog.sim.checkers.liveness import Offsets, TransactionSeen
from oncelog.sim.workloads.kit.recorder import Recorder, seen
from oncelog.sim.workloads.kit.requests import has_several_brokers, request_all, transaction_coordinator_of
from oncelog.sim.workloads.kit.workload import Topic
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.list_transactions import ListTransactionsRequest

EARLIEST: Final = -2
LATEST: Final = -1
# The timeout of a two-phase transaction.
NEVER_MS: Final = 2**31 - 1


async def partitions_of(client: AsyncClient, topics: Sequence[Topic]) -> list[TopicPartition]:
    """All current partitions of the topics, in order. Topics may have been deleted or extended during the run."""
    topics_by_name = await client.metadata([topic.name for topic in topics])
    return [
        TopicPartition(name, index)
        for name, topic in sorted(topics_by_name.items())
        if topic.exists
        for index in sorted(topic.partitions)
    ]


async def offsets_of(client: AsyncClient, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offsets]:
    async with AsyncConsumer(client) as consumer:
        high_watermarks = await consumer.list_offsets(dict.fromkeys(partitions, LATEST))
        last_stable = await consumer.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
    return {partition: Offsets(high_watermarks[partition], last_stable[partition]) for partition in partitions}


async def transactions_of(client: AsyncClient) -> list[TransactionSeen]:
    """All transactions that the coordinators know, except those whose ids expire between the two requests."""
    answers = await request_all(client, ListTransactionsRequest(), lambda answer: answer.error_code)
    ids = [state.transactional_id for answer in answers for state in answer.transaction_states]
    described = await _describe(client, ids)
    return [
        TransactionSeen(
            state.transactional_id,
            state.transaction_state,
            state.transaction_timeout_ms == NEVER_MS,
            frozenset(
                TopicPartition(TopicName(topic.topic), partition)
                for topic in state.topics
                for partition in topic.partitions
            ),
        )
        for state in described
        if state.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    ]


async def _describe(client: AsyncClient, ids: Sequence[str]) -> list[TransactionState]:
    if not has_several_brokers(client):
        return (await client.request(DescribeTransactionsRequest(transactional_ids=list(ids)))).transaction_states
    return [await client.retrying(partial(_describe_one, client, id_)) for id_ in sorted(set(ids))]


async def _describe_one(client: AsyncClient, transactional_id: str) -> TransactionState:
    coordinator = await transaction_coordinator_of(client, transactional_id)
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    described = (await client.request(request, broker=coordinator)).transaction_states[0]
    if described.error_code not in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
        raise BrokerRefused(described.error_code, f"transaction of {transactional_id}")
    return described


async def groups_of(client: AsyncClient) -> dict[str, str]:
    answers = await request_all(client, ListGroupsRequest(), lambda answer: answer.error_code)
    return {group.group_id: group.group_state for answer in answers for group in answer.groups}


async def drain(client: AsyncClient, recorder: Recorder, partitions: Sequence[TopicPartition]) -> None:
    """Read every partition at read_committed up to its last stable offset, for ``recorder``."""
    async with AsyncConsumer(client, FetchSettings(read_committed=True, max_wait_ms=100)) as consumer:
        starts = await consumer.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = await consumer.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
        recorder.log_starts.update(starts)
        drained: dict[TopicPartition, list[SeenRecord]] = {partition: [] for partition in partitions}
        await consumer.assign(starts, ends)
        while len(consumer.positions):
            for fetched in await consumer.poll():
                if (
                    fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
                ):  # retention has moved the log start: read from there
                    return await drain(client, recorder, partitions)
                drained[fetched.partition] += seen(fetched, read_committed=True)
        recorder.drained.update(drained)
        return None
