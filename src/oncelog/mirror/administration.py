"""The requests about topics and groups that a mirror makes, over the asyncio client.

The rule: one function a question or change, retried while its error may pass; refusals are raised as BrokerRefused.
Why not ``oncelog.admin``: its functions block, and a mirror copies meanwhile (and runs in the simulator).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.aio.offsets import list_offsets
from oncelog.client.errors import BrokerRefused, UnsupportedRequest
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.metadata import TopicInfo
from oncelog.client.machine.positions import FetchSettings
from oncelog.mirror.topic_plan import ConfigValue
from oncelog.wire.message import Request, Response
from oncelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.wire.messages.describe_groups import DescribeGroupsRequest
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.metadata import MetadataRequest

EARLIEST: Final = -2
LATEST: Final = -1
_TIMEOUT_MS: Final = 30_000
_TOPIC: Final = 2
_SET: Final = 0
_DELETE: Final = 1
_FIRST_CREATE_WITH_DEFAULTS: Final = 4
R = TypeVar("R", bound=Response)


class ReadRecord(NamedTuple):
    """A record of an internal topic."""

    partition: TopicPartition
    offset: int
    key: bytes | None
    value: bytes | None


async def all_topics(client: AsyncClient) -> dict[TopicName, TopicInfo]:
    """Every topic that exists and may be seen."""

    async def attempt() -> dict[TopicName, TopicInfo]:
        response = await client.request(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        if response.error_code:
            raise BrokerRefused(response.error_code, "metadata")
        client.view.apply(response, int(asyncio.get_running_loop().time() * 1000))
        names = [TopicName(one.name) for one in response.topics or () if one.name is not None and not one.error_code]
        return {name: client.view.topics[name] for name in names}

    return await client.retrying(attempt)


async def create_topic(
    client: AsyncClient,
    name: str,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str],
    *,
    validate_only: bool = False,
) -> bool:
    """Create a topic and wait until it is known; False if it was there. Raises BrokerRefused.

    ``validate_only`` asks the cluster whether it would create the topic.
    """
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )

    async def attempt() -> bool:
        link = await client.link(await _controller(client))
        message = CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS, validate_only=validate_only)
        version = link.versions.choose(message)
        if version < _FIRST_CREATE_WITH_DEFAULTS:
            topic.replication_factor = max(topic.replication_factor, 1)
        result = (await link.call(message, version, 2 * _TIMEOUT_MS)).topics[0]
        if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        if result.error_code:
            raise BrokerRefused(result.error_code, f"topic {name!r} at the target", result.error_message)
        return True

    created = await client.retrying(attempt)
    if validate_only:
        return created
    client.view.forget(name)
    await client.topic(name, create=False)
    return created


async def add_partitions(client: AsyncClient, name: str, total: int) -> None:
    """Bring a topic to ``total`` partitions. Raises BrokerRefused."""
    topic = CreatePartitionsTopic(name=name, count=total, assignments=None)

    async def attempt() -> None:
        message = CreatePartitionsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
        result = (await _call_controller(client, message)).results[0]
        if result.error_code:
            raise BrokerRefused(result.error_code, f"topic {name!r} at the target", result.error_message)

    await client.retrying(attempt)
    client.view.forget(name)


async def delete_topic(client: AsyncClient, name: str) -> None:
    """Delete a topic; one that is not there is no error. Raises BrokerRefused."""

    async def attempt() -> None:
        message = DeleteTopicsRequest(topic_names=[name], topics=[DeleteTopicState(name=name)], timeout_ms=_TIMEOUT_MS)
        result = (await _call_controller(client, message)).responses[0]
        if result.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise BrokerRefused(result.error_code, f"topic {name!r} at the target", result.error_message)

    await client.retrying(attempt)
    client.view.forget(name)


async def topic_configs(client: AsyncClient, names: Iterable[str]) -> dict[str, dict[str, ConfigValue]]:
    """Configurations by topic; topics that are gone or may not be described are left out, all of brokers before 1.1."""
    wanted = [
        DescribeConfigsResource(resource_type=_TOPIC, resource_name=one, configuration_keys=None) for one in names
    ]
    if not wanted:
        return {}

    async def attempt() -> dict[str, dict[str, ConfigValue]]:
        response = await client.request(DescribeConfigsRequest(resources=wanted))
        return {
            result.resource_name: {one.name: ConfigValue(one.value, one.config_source) for one in result.configs}
            for result in response.results
            if not result.error_code
        }

    try:
        return await client.retrying(attempt)
    except UnsupportedRequest:
        return {}


async def alter_topic_configs(
    client: AsyncClient, name: str, change: Mapping[str, str], delete: Iterable[str] = ()
) -> None:
    """Set some keys of a topic and return others to their defaults. Raises BrokerRefused."""
    configs = [AlterableConfig(name=key, config_operation=_SET, value=value) for key, value in change.items()]
    configs += [AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in delete]
    resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=name, configs=configs)

    async def attempt() -> None:
        response = await _call_controller(client, IncrementalAlterConfigsRequest(resources=[resource]))
        for one in response.responses:
            if one.error_code:
                raise BrokerRefused(one.error_code, f"configuration of topic {name!r} at the target", one.error_message)

    await client.retrying(attempt)


async def list_groups(client: AsyncClient) -> list[str]:
    """Names of all consumer groups, of every coordinator."""
    await client.retrying(client.refresh)
    found: dict[str, None] = {}

    async def ask(broker: int) -> None:
        response = await client.request(ListGroupsRequest(), broker=broker)
        if response.error_code:
            raise BrokerRefused(response.error_code, f"groups of broker {broker}")
        for one in response.groups:
            if one.protocol_type in ("", "consumer"):
                found[one.group_id] = None

    for broker in sorted(client.view.brokers):
        await client.retrying(lambda broker=broker: ask(broker))  # type: ignore[misc]  # bound now
    return sorted(found)


async def has_members(client: AsyncClient, group: str) -> bool:
    """True if the group has members, of either protocol."""

    async def attempt() -> bool:
        try:
            found = (await _call_coordinator(client, group, DescribeGroupsRequest(groups=[group]))).groups[0]
            if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                return await _has_members_of_the_new_protocol(client, group)
            if found.error_code:
                raise BrokerRefused(found.error_code, f"group {group!r}", found.error_message)
        except BrokerRefused:
            client.forget_coordinator(group)
            raise
        return bool(found.members) or found.group_state not in ("Empty", "Dead", "")

    return await client.retrying(attempt)


async def read_to_end(
    client: AsyncClient,
    partitions: Iterable[TopicPartition],
    starts: Mapping[TopicPartition, int] | None = None,
    *,
    read_committed: bool = True,
) -> AsyncIterator[ReadRecord]:
    """Every record that was written before the call, by partition in order; of transactions the committed.

    From ``starts``, or the beginning. Waits for transactions that are open now. Raises BrokerRefused, and what a
    consumer raises.
    """
    wanted = list(partitions)
    starts = starts or await list_offsets(client, dict.fromkeys(wanted, EARLIEST))
    ends = await list_offsets(client, dict.fromkeys(wanted, LATEST))
    async with AsyncConsumer(client, FetchSettings(read_committed=read_committed)) as consumer:
        await consumer.assign(starts, until=ends)
        while len(consumer.positions):
            for fetched in await consumer.poll():
                if fetched.error_code:
                    raise BrokerRefused(fetched.error_code, f"fetch from {fetched.partition}")
                for record in read_fetched(fetched, read_committed=read_committed):
                    if record.offset < ends[fetched.partition]:
                        yield ReadRecord(fetched.partition, record.offset, record.key, record.value)


async def _has_members_of_the_new_protocol(client: AsyncClient, group: str) -> bool:
    from oncelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest

    try:
        found = (await _call_coordinator(client, group, ConsumerGroupDescribeRequest(group_ids=[group]))).groups[0]
    except UnsupportedRequest:
        return False
    if found.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return False
    if found.error_code:
        raise BrokerRefused(found.error_code, f"group {group!r}", found.error_message)
    return bool(found.members)


async def _controller(client: AsyncClient) -> int:
    if client.view.controller_id not in client.view.brokers:
        await client.refresh()
    return client.view.controller_id if client.view.controller_id in client.view.brokers else -1


async def _call_controller(client: AsyncClient, message: Request[R]) -> R:
    link = await client.link(await _controller(client))
    response: Any = await link.call(message, timeout_ms=2 * _TIMEOUT_MS)
    return response  # type: ignore[no-any-return]


async def _call_coordinator(client: AsyncClient, group: str, message: Request[R]) -> R:
    link = await client.link(await client.coordinator(group))
    return await link.call(message)
