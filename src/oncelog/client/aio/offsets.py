"""Offsets over asyncio: those a group has committed (rules: ``machine.offsets``), and those of times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from oncelog.base.ids import TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.offsets import (
    LAST_VERSION_BY_NAME,
    Committed,
    Membership,
    check_commit,
    committed_in,
    offset_commit_request,
    offset_fetch_request,
)
from oncelog.client.machine.requests import list_offsets_request


async def committed_offsets(
    client: AsyncClient,
    group: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
) -> dict[TopicPartition, Committed]:
    """The committed offsets of a group, for some partitions or all; without those it has no offset for.

    ``require_stable`` waits for the transactions that have offsets pending (KIP-447); a consumer that reads on from
    these offsets needs it.
    """
    message = offset_fetch_request(group, partitions, require_stable=require_stable)

    async def attempt() -> dict[TopicPartition, Committed]:
        link = await client.link(await client.coordinator(group))
        return committed_in(await link.call(message, link.versions.choose(message, LAST_VERSION_BY_NAME)), group)

    return await client.retrying(attempt)


async def commit_offsets(
    client: AsyncClient,
    group: str,
    offsets: Mapping[TopicPartition, Committed],
    membership: Membership | None = None,
) -> None:
    """Commit offsets for a group. Raises BrokerRefused for the first partition that is refused."""
    if not offsets:
        return
    message = offset_commit_request(group, offsets, membership or Membership())

    async def attempt() -> None:
        link = await client.link(await client.coordinator(group))
        check_commit(await link.call(message, link.versions.choose(message, LAST_VERSION_BY_NAME)), group)

    await client.retrying(attempt)


async def list_offsets(
    client: AsyncClient, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> dict[TopicPartition, int]:
    """The first offset at or after a timestamp in milliseconds, or −1 latest, −2 earliest; −1 if there is none.

    With ``read_committed`` the latest is the last stable offset. Raises UnknownTopic, BrokerRefused.
    """

    async def ask(partition: TopicPartition) -> int:
        link = await client.link(await client.leader(partition))
        message = list_offsets_request(client.view, wanted, [partition], read_committed)
        answer = (await link.call(message, link.versions.choose(message))).topics[0].partitions[0]
        if answer.error_code:
            raise BrokerRefused(answer.error_code, f"offsets of {partition}")
        return answer.offset

    found: dict[TopicPartition, int] = {}
    for partition in wanted:
        found[partition] = await client.retrying(lambda partition=partition: ask(partition))  # type: ignore[misc]  # bound now
    return found
