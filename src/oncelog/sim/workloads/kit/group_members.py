"""Consumers that write down what they do: members of groups with their commits, and positions that begin anew.

The rule: an offset commit is in the history before it is asked for; where an attempt went unanswered it is there a
second time as one that may still happen, however late, because the request may lie on an old connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from oncelog.base.ids import TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.group import AsyncGroupConsumer, OnRevoked
from oncelog.client.errors import ClientError
from oncelog.client.machine.group import GroupSettings
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.client.programs.group import committed_offsets
from oncelog.sim.checkers.history import Commit, GroupPartition, Poll, SeenRecord
from oncelog.sim.virtual.world import CLIENT_CONFIG, ClientHost
from oncelog.sim.workloads.kit.workload import WorkloadContext

MEMBER: Final = GroupSettings(session_timeout_ms=8_000, rebalance_timeout_ms=6_000, heartbeat_interval_ms=1_000)
"""Impatient, so that deaths are noticed within a simulation."""


class CountingClient(AsyncClient):
    """A client that counts the requests that went unanswered."""

    unanswered = 0

    def may_pass(self, error: ClientError) -> bool:
        self.unanswered += error.retriable
        return super().may_pass(error)


def counting_client(host: ClientHost) -> CountingClient:
    """A client as ``host.client`` makes it, which counts its requests."""
    kernel = host.world.kernel
    return CountingClient(
        host.world.bootstrap, config=CLIENT_CONFIG, entropy=kernel.entropy("jitter"), now_ms=kernel.now_ms
    )


class RecordedMember(AsyncGroupConsumer):
    """A member of a group whose polls and commits are in the history."""

    def __init__(
        self,
        context: WorkloadContext,
        client: CountingClient,
        name: str,
        group: str,
        topics: Sequence[str],
        *,
        settings: GroupSettings = MEMBER,
        fetch: FetchSettings | None = None,
        on_revoked: OnRevoked | None = None,
    ) -> None:
        fetch = fetch or FetchSettings()
        super().__init__(
            client, group, topics, settings=settings, fetch=fetch, on_assigned=self._began, on_revoked=on_revoked
        )
        self._stage = context
        self._doubting = client
        self._name = name
        self._group = group
        self._isolated = fetch.read_committed
        self._processed: dict[TopicPartition, int] = {}

    def took(self, fetched: Fetched) -> list[SeenRecord]:
        """Write down what ``poll`` returned; its records."""
        return self._stage.recorder.polled(self._name, fetched, read_committed=self._isolated, group=self._group)

    def processed(self, partition: TopicPartition, next_offset: int) -> None:
        self._processed[partition] = next_offset
        super().processed(partition, next_offset)

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """Seek as the consumer does; from here on the history begins anew."""
        self._anew(positions)
        super().seek(positions)

    async def commit(self) -> None:
        """Commit as the consumer does, and write it down."""
        offsets = {p: offset for p, offset in self._processed.items() if p in self.assignment}
        self._processed.clear()
        await recorded_commit(self._stage, self._doubting, self._group, offsets, self._membership.commit)

    async def _began(self, positions: dict[TopicPartition, int]) -> None:
        self._anew(positions)

    def _anew(self, positions: Mapping[TopicPartition, int]) -> None:
        for partition in positions:
            note_seek(self._stage, self._name, partition, read_committed=self._isolated, group=self._group)


def note_seek(
    context: WorkloadContext, name: str, partition: TopicPartition, *, read_committed: bool, group: str | None = None
) -> None:
    poll = Poll(name, partition, context.world.kernel.now_us, [], True, read_committed)
    context.recorder.polls.append(poll._replace(group=group))


async def recorded_commit(
    context: WorkloadContext,
    client: CountingClient,
    group: str,
    offsets: Mapping[TopicPartition, int],
    commit: Callable[[], Awaitable[bool]],
) -> None:
    """Commit, with its entries in the history: first as asked for, then as answered."""
    commits, kernel = context.recorder.commits, context.world.kernel
    first, unanswered = len(commits), client.unanswered
    asked_at = kernel.now_us
    asked = [Commit(GroupPartition(group, p), offset, asked_at, None) for p, offset in offsets.items()]
    commits.extend(asked)
    agreed = await commit()
    if agreed and client.unanswered == unanswered:
        for index, entry in enumerate(asked, first):
            commits[index] = entry._replace(answered_at=kernel.now_us)
    elif agreed:
        commits.extend(entry._replace(answered_at=kernel.now_us) for entry in asked)


async def note_group(context: WorkloadContext, client: AsyncClient, group: str) -> None:
    """Write the group's committed offsets at the end into the history."""
    recorder = context.recorder
    found = recorder.committed_offsets = recorder.committed_offsets or {}
    for partition, committed in (await committed_offsets(client, group, require_stable=True)).items():
        found[GroupPartition(group, partition)] = committed.offset
