"""Consumers that record their actions: group members with their commits, and positions after seeks."""

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
from oncelog.client.programs.group_protocol import GroupProtocol
from oncelog.sim.checkers.history import Commit, GroupPartition, Poll, SeenRecord
from oncelog.sim.virtual.world import CLIENT_CONFIG, ClientHost
from oncelog.sim.workloads.kit.workload import WorkloadContext

# Impatient, so that deaths are noticed within a simulation.
MEMBER: Final = GroupSettings(session_timeout_ms=8_000, rebalance_timeout_ms=6_000, heartbeat_interval_ms=1_000)
# The protocols of the members of one group.
GROUP_PROTOCOLS: Final[tuple[tuple[GroupProtocol, ...], ...]] = (
    ("classic",),
    ("consumer",),
    ("classic", "consumer"),
)


class CountingClient(AsyncClient):
    """A client that counts requests without a response."""

    unanswered = 0

    def may_pass(self, error: ClientError) -> bool:
        self.unanswered += error.retriable
        return super().may_pass(error)


def counting_client(host: ClientHost) -> CountingClient:
    kernel = host.world.kernel
    return CountingClient(
        host.world.bootstrap, config=CLIENT_CONFIG, entropy=kernel.entropy("jitter"), now_ms=kernel.now_ms
    )


class RecordedMember(AsyncGroupConsumer):
    """A group member whose polls and commits are in the history."""

    def __init__(
        self,
        context: WorkloadContext,
        client: CountingClient,
        name: str,
        group: str,
        topics: Sequence[str],
        *,
        pattern: str | None = None,
        settings: GroupSettings = MEMBER,
        fetch: FetchSettings | None = None,
        on_revoked: OnRevoked | None = None,
        protocol: GroupProtocol | None = None,
    ) -> None:
        fetch = fetch or FetchSettings()
        super().__init__(
            client,
            group,
            topics,
            pattern=pattern,
            settings=settings,
            fetch=fetch,
            on_assigned=self._record_assignment,
            on_revoked=on_revoked,
            protocol=protocol,
        )
        self._context = context
        self._counting_client = client
        self._name = name
        self._group = group
        self._read_committed = fetch.read_committed
        self._processed: dict[TopicPartition, int] = {}

    def record_fetched(self, fetched: Fetched) -> list[SeenRecord]:
        """Record a result of ``poll`` and return its records."""
        return self._context.recorder.polled(
            self._name, fetched, read_committed=self._read_committed, group=self._group
        )

    def processed(self, partition: TopicPartition, next_offset: int) -> None:
        self._processed[partition] = next_offset
        super().processed(partition, next_offset)

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """Seek, and record the new position."""
        self._record_seeks(positions)
        super().seek(positions)

    async def commit(self) -> None:
        """Commit, and record it."""
        offsets = {p: offset for p, offset in self._processed.items() if p in self.assignment}
        self._processed.clear()
        await recorded_commit(self._context, self._counting_client, self._group, offsets, self._membership.commit)

    async def _record_assignment(self, positions: dict[TopicPartition, int]) -> None:
        self._record_seeks(positions)

    def _record_seeks(self, positions: Mapping[TopicPartition, int]) -> None:
        for partition in positions:
            record_seek(self._context, self._name, partition, read_committed=self._read_committed, group=self._group)


def record_seek(
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
    # A commit is in the history before its request. If an attempt had no response, it is there a second time as
    # possible at any later time, since the request may wait on an old connection.
    commits, kernel = context.recorder.commits, context.world.kernel
    first, unanswered = len(commits), client.unanswered
    requested_at = kernel.now_us
    entries = [Commit(GroupPartition(group, p), offset, requested_at, None) for p, offset in offsets.items()]
    commits.extend(entries)
    is_committed = await commit()
    if is_committed and client.unanswered == unanswered:
        for index, entry in enumerate(entries, first):
            commits[index] = entry._replace(answered_at=kernel.now_us)
    elif is_committed:
        commits.extend(entry._replace(answered_at=kernel.now_us) for entry in entries)


async def record_group_offsets(context: WorkloadContext, client: AsyncClient, group: str) -> None:
    recorder = context.recorder
    offsets = recorder.committed_offsets = recorder.committed_offsets or {}
    for partition, committed in (await committed_offsets(client, group, require_stable=True)).items():
        offsets[GroupPartition(group, partition)] = committed.offset
