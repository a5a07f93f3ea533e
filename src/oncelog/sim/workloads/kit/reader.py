"""Lone consumers that read continuously and record what they read, for several workloads."""

from __future__ import annotations

from typing import ClassVar, Final, Protocol, TypeVar

from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.errors import ClientError
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.workload import Topic, WorkloadContext, WorkloadProgram

POLL_MS: Final = 250
_FOREVER_MS: Final = 1 << 62


class ReadWorkload(Protocol):
    """A workload with a topic to read, the first of ``topics``."""

    def topics(self) -> list[Topic]: ...


R = TypeVar("R", bound=ReadWorkload)


class ReadingProgram(WorkloadProgram[R]):
    """Reads from the start, at read_uncommitted, and again after each death."""

    # The longest pause between polls.
    pause_ms: ClassVar[int] = 200

    def __init__(self, context: WorkloadContext, workload: R, name: str) -> None:
        super().__init__(context, workload, name)
        self.partitions = workload.topics()[0].topic_partitions

    async def __call__(self, host: ClientHost) -> None:
        async with host.client() as client, AsyncConsumer(client, self.fetch()) as consumer:
            await consumer.assign(dict.fromkeys(self.partitions, 0))
            await self.read(host, consumer)

    async def read(
        self, host: ClientHost, consumer: AsyncConsumer, *, until_ms: int = _FOREVER_MS, read_committed: bool = False
    ) -> None:
        while not host.stopping and host.now_ms < until_ms:
            for fetched in await consumer.poll(POLL_MS):
                if not fetched.error_code:
                    self.context.recorder.polled(host.name, fetched, read_committed=read_committed)
                elif self.is_over(fetched):
                    return
            await host.pause(self.entropy, self.pause_ms)

    # A workload may override these.

    def fetch(self) -> FetchSettings:
        return FetchSettings(max_wait_ms=POLL_MS)

    def is_over(self, refused: Fetched) -> bool:
        """True if a partition's error ends the reading. May raise instead."""
        raise ClientError(f"{refused.partition}: {refused.error_code}")
