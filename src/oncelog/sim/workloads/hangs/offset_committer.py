"""A lone consumer that commits after everything it does, and reads back what it has committed (W16, H17).

Members of groups commit now and then; here the power fails more often between a commit and its sync.
"""

from __future__ import annotations

from typing import Final

from oncelog.base.ids import TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.offsets import committed_offsets
from oncelog.client.errors import BrokerRefused
from oncelog.sim.checkers.history import Commit, GroupPartition
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.workload import WorkloadContext
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

VERSION: Final = 8
"""Names topics by name."""


class OffsetCommitter:
    """The offsets are numbers that rise over all lives of the program."""

    def __init__(self, context: WorkloadContext, group: str, place: TopicPartition) -> None:
        self.context = context
        self.key = GroupPartition(group, place)
        self.entropy = context.entropy(group)
        self.count = 0

    async def __call__(self, host: ClientHost) -> None:
        async with host.client() as client:
            while not host.stopping:
                await committed_offsets(client, self.key.group, [self.key.partition], require_stable=True)
                for _ in range(self.entropy.randint(1, 10)):
                    await self.commit(client)
                    await host.sleep(self.entropy.randint(1, 100))

    async def commit(self, client: AsyncClient) -> None:
        """The next number; it is in the history before it is asked for."""
        commits, kernel = self.context.recorder.commits, self.context.world.kernel
        self.count += 1
        index, commit = len(commits), Commit(self.key, self.count, kernel.now_us, None)
        commits.append(commit)
        place = self.key.partition
        part = OffsetCommitRequestPartition(partition_index=place.partition, committed_offset=self.count)
        topic = OffsetCommitRequestTopic(name=place.topic, partitions=[part])
        request = OffsetCommitRequest(group_id=self.key.group, topics=[topic])
        link = await client.link(await client.coordinator(self.key.group))
        code = (await link.call(request, VERSION)).topics[0].partitions[0].error_code
        if code:
            raise BrokerRefused(code, "OffsetCommit")
        commits[index] = commit._replace(answered_at=kernel.now_us)
