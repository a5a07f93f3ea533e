"""Assigns work to an instance: the slots that it owns as a member of a group at the target.

Slots are the partitions of the positions topic: the group's generation identifies a slot's owner, and a transaction
that commits a slot's offset under an old one is refused (KIP-447). ``settle`` returns once the slots' offsets are
stable: no transaction of an earlier owner is undecided. Members are static (KIP-345): a killed instance takes its slots
back at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from oncelog.client.aio.client import AsyncClient, loop_ms
from oncelog.client.aio.membership import GroupMembership
from oncelog.client.errors import ClientError
from oncelog.client.machine.assigned_partitions import AssignedPartitions
from oncelog.client.machine.group import GroupSettings
from oncelog.client.machine.offsets import GroupMetadata
from oncelog.client.programs.group_protocol import Subscription
from oncelog.mirror.settings import MirrorSettings
from oncelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity

_REBALANCE_MS: Final = 30_000
_LEAVE_TIMEOUT_S: Final = 5.0


class Share:
    """The membership: ``settle``, then work while ``is_valid``, then ``release``."""

    def __init__(self, client: AsyncClient, settings: MirrorSettings, topic: str) -> None:
        group, session = settings.group, settings.session_timeout_ms
        self._client = client
        self._instance = f"{group}-{settings.instance}"
        member = GroupSettings(session, _REBALANCE_MS, max(session // 5, 500), self._instance)
        # A rebalance stops all work on slots, which the classic protocol's eager ones are made for.
        subscription = Subscription(group, [topic], protocol="classic", settings=member)
        self._assigned = AssignedPartitions(group, self._instance, "latest", loop_ms())
        self._membership = GroupMembership(client, subscription, self._assigned, read_committed=True)

    @property
    def metadata(self) -> GroupMetadata:
        """The member's identity, for the offsets in its transactions."""
        return self._assigned.metadata

    @property
    def is_valid(self) -> bool:
        """True while the slots belong to this member. Call it often: it also keeps the membership alive.

        Raises the membership's failure.
        """
        self._membership.attend()
        return self._assigned.is_assigned and self._membership.revocable is None

    @property
    def news(self) -> asyncio.Future[None]:
        """Done when ``is_valid`` may have changed."""
        return self._membership.news

    async def settle(self, wait_ms: int) -> tuple[int, ...] | None:
        """The slots of this member, or None if they are not decided within ``wait_ms``. Raises ClientError."""
        deadline = loop_ms() + wait_ms
        while True:
            self._membership.attend()
            if self._membership.take_start() is not None:
                return tuple(sorted(partition.partition for partition in self._assigned.owned))
            left = deadline - loop_ms()
            if left <= 0:
                return None
            await asyncio.wait([self._membership.news], timeout=left / 1000)

    def release(self) -> None:
        self._membership.released(self._assigned.owned)

    async def leave(self) -> None:
        """Leave the group, so that others take over at once. Failures are left to time-outs."""
        try:
            with contextlib.suppress(ClientError, TimeoutError):
                await self._membership.leave()
                async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                    await self._send_leave()
        finally:
            self._assigned.revoke()
            await self._membership.close()

    async def close(self) -> None:
        """End the membership without leaving the group: the instance will come back."""
        self._assigned.revoke()
        await self._membership.close()

    async def _send_leave(self) -> None:
        identity = MemberIdentity(member_id="", group_instance_id=self._instance, reason="the mirror ends")
        group = self._assigned.metadata.group
        link = await self._client.link(await self._client.coordinator(group))
        await link.call(LeaveGroupRequest(group_id=group, members=[identity]))
