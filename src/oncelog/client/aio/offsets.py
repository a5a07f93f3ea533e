"""Offsets over an asyncio client; the programs are ``programs.group``."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.base.ids import TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.programs import log_offsets
from oncelog.client.programs.group import commit_offsets as commit_offsets
from oncelog.client.programs.group import committed_offsets as committed_offsets


async def list_offsets(
    client: AsyncClient, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> dict[TopicPartition, int]:
    """The first offset at or after a timestamp in milliseconds, or −1 latest, −2 earliest; −1 if there is none.

    With ``read_committed`` the latest is the last stable offset. Raises UnknownTopic, BrokerRefused.
    """
    listed = await client.run(log_offsets.list_offsets(client.cluster, wanted, read_committed=read_committed))
    return {partition: listed[partition].offset for partition in wanted}
