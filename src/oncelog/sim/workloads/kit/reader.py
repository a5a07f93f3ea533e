"""Lone consumers that read on and write down what they got: what reading workloads share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.errors import ClientError
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.workload import WorkloadContext

POLL_MS: Final = 250
_FOREVER_MS: Final = 1 << 62


class ReadingProgram:
    """Reads ``partitions`` of a topic from the beginning, at read_uncommitted; again after each death."""

    pause_ms: ClassVar[int] = 200
    """The longest, between polls."""

    def __init__(self, context: WorkloadContext, name: str, partitions: int = 1) -> None:
        self.context = context
        self.entropy = context.entropy(f"{name}-read")
        self.partitions: Sequence[TopicPartition] = [
            TopicPartition(TopicName(name), index) for index in range(partitions)
        ]

    async def __call__(self, host: ClientHost) -> None:
        async with host.client() as client, AsyncConsumer(client, self.fetch()) as consumer:
            await consumer.assign(dict.fromkeys(self.partitions, 0))
            await self.read(host, consumer)

    async def read(
        self, host: ClientHost, consumer: AsyncConsumer, *, until_ms: int = _FOREVER_MS, read_committed: bool = False
    ) -> None:
        """Read until a time, or until ``is_over`` says so."""
        while not host.stopping and host.now_ms < until_ms:
            for fetched in await consumer.poll(POLL_MS):
                if not fetched.error_code:
                    self.context.recorder.polled(host.name, fetched, read_committed=read_committed)
                elif self.is_over(fetched):
                    return
            await host.pause(self.entropy, self.pause_ms)

    # What a workload may say otherwise.

    def fetch(self) -> FetchSettings:
        """The limits of a fetch."""
        return FetchSettings(max_wait_ms=POLL_MS)

    def is_over(self, refused: Fetched) -> bool:
        """True when an error of a partition ends the reading; or raise."""
        raise ClientError(f"{refused.partition}: {refused.error_code}")
