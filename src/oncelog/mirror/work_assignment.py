"""An instance's share of the work: the slots it owns, as a member of a group at the target.

Rules: the slots are the partitions of the positions topic, so that a slot's owner is known by the generation of the
group, and a transaction that commits the slot's offset under an old generation is refused (KIP-447). ``settle`` returns
when the offsets of the slots are stable: no transaction of an earlier owner is undecided then. Members are static
(KIP-345): an instance that was killed and starts again takes its slots back at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from oncelog.client.aio.client import AsyncClient, loop_ms
from oncelog.client.aio.membership import GroupMembership
from oncelog.client.errors import ClientError
from oncelog.client.machine.assigned_partitions import AssignedPartitions
from oncelog.client.machine.group import GroupMember, GroupSettings
from oncelog.client.machine.offsets import GroupMetadata
from oncelog.mirror.settings import MirrorSettings
from oncelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity

_REBALANCE_MS: Final = 30_000
_GOODBYE_S: Final = 5.0


class Share:
    """The membership; ``settle``, then work while ``is_valid``, then ``release``."""

    def __init__(self, client: AsyncClient, settings: MirrorSettings, topic: str) -> None:
        group, session = settings.group, settings.session_timeout_ms
        self._client = client
        self._instance = f"{group}-{settings.instance}"
        member = GroupMember(
            group, [topic], GroupSettings(session, _REBALANCE_MS, max(session // 5, 500), self._instance)
        )
        self._assigned = AssignedPartitions(group, self._instance, "latest", loop_ms())
        self._membership = GroupMembership(client, member, self._assigned, read_committed=True)

    @property
    def metadata(self) -> GroupMetadata:
        """The member's identity, for the offsets in its transactions."""
        return self._assigned.metadata

    @property
    def is_valid(self) -> bool:
        """True while the slots are this member's; to be asked often, because it also shows that the member lives.

        Raises what the membership failed with.
        """
        self._membership.attend()
        return self._assigned.is_assigned and not self._membership.is_over

    @property
    def news(self) -> asyncio.Future[None]:
        """Done when ``is_valid`` may have changed."""
        return self._membership.news

    async def settle(self, wait_ms: int) -> tuple[int, ...] | None:
        """The slots this member owns, None if that is not decided after ``wait_ms``. Raises ClientError."""
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
        """Give up the slots: the group may share them anew."""
        self._membership.released()

    async def leave(self) -> None:
        """Leave the group, so that others take over at once; end the membership. Failures are left to time-outs."""
        try:
            with contextlib.suppress(ClientError, TimeoutError):
                await self._membership.leave()
                async with asyncio.timeout(_GOODBYE_S):
                    await self._say_goodbye()
        finally:
            self._assigned.revoke()
            await self._membership.close()

    async def close(self) -> None:
        """End the membership without a word, as after a failure: the instance will come back."""
        self._assigned.revoke()
        await self._membership.close()

    async def _say_goodbye(self) -> None:
        identity = MemberIdentity(member_id="", group_instance_id=self._instance, reason="the mirror ends")
        group = self._assigned.metadata.group
        link = await self._client.link(await self._client.coordinator(group))
        await link.call(LeaveGroupRequest(group_id=group, members=[identity]))
