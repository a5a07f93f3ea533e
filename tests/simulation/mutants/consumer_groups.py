"""Bugs of coordinators of consumer groups (KIP-848), most of them once in Apache Kafka. Pure tests with the numbers of
the others are in ``tests/unit/core/groups/consumer``.
"""

from __future__ import annotations

from typing import Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import MemberId
from oncelog.core.groups import commits
from oncelog.core.groups.consumer import reconciliation, records
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.consumer.member import Partitions
from oncelog.core.groups.consumer_groups import ConsumerGroups
from oncelog.records.internal.consumer_group_records import MemberKey
from tests.simulation.mutants.mutant import Mutant


def _owners_unchecked(right: Any) -> Any:
    def owners_of(self: ConsumerGroup, topic: Any) -> dict[int, MemberId]:
        return {}

    return owners_of


def _silence_releases(right: Any) -> Any:
    def owns_any(owned: Partitions | None, partitions: Any) -> bool:
        return owned is not None and bool(right(owned, partitions))

    return owns_any


def _release_lost(right: Any) -> Any:
    def release(self: ConsumerGroup, member: Any) -> None:
        if not member.pending_revocation:
            right(self, member)

    return release


def _members_left_behind(right: Any) -> Any:
    def group_tombstones(group: Any, members: Any = None) -> Any:
        return [record for record in right(group, members) if not isinstance(record[0], MemberKey)]

    return group_tombstones


def _no_timers_after_load(right: Any) -> Any:
    def start_timers(self: ConsumerGroups, group: ConsumerGroup, now_ms: int) -> None:
        """A member that is gone stays for ever."""

    return start_timers


def _epochs_unchecked(right: Any) -> Any:
    def check_commit(*request: Any, **options: Any) -> Any:
        return lambda *partition: ErrorCode.NONE

    return check_commit


CONSUMER_GROUPS: Final = (
    Mutant(
        "owners-unchecked",
        "a partition is assigned although another member still has it",
        ConsumerGroup,
        "owners_of",
        _owners_unchecked,
    ),
    Mutant(
        "silence-releases",
        "a heartbeat without a list of owned partitions counts as a release",
        reconciliation,
        "_owns_any",
        _silence_releases,
    ),
    Mutant(
        "release-lost",
        "a partition that a member has given up stays its own (KAFKA-19862)",
        ConsumerGroup,
        "_release",
        _release_lost,
    ),
    Mutant(
        "members-left-behind",
        "a group that becomes classic leaves its members' records behind (KAFKA-20254, KAFKA-21102)",
        records,
        "group_tombstones",
        _members_left_behind,
    ),
    Mutant(
        "no-timers-after-load",
        "a loaded group has no timers",
        ConsumerGroups,
        "start_timers",
        _no_timers_after_load,
    ),
    Mutant(
        "epochs-unchecked",
        "commits of any member epoch are accepted",
        commits,
        "check_commit",
        _epochs_unchecked,
    ),
)
