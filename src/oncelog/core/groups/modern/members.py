"""Members of groups of the newer protocols: epochs, states, partitions, and the memory that they hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import Final

from oncelog.base.ids import TopicId

Partitions = Mapping[TopicId, frozenset[int]]
"""Partitions by topic."""
NO_PARTITIONS: Final[Partitions] = {}
JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
MEMBER_BYTES: Final = 2000
"""Estimated memory of a member besides its subscription and partitions."""
_NAME_BYTES: Final = 120
_TARGET_PARTITION_BYTES: Final = 80


def bytes_of_names(names: Collection[str]) -> int:
    """An estimate of the memory of a set of names."""
    return _NAME_BYTES * len(names) + sum(map(len, names))


def bytes_of_share(share: Partitions) -> int:
    """An estimate of the memory of a member's share of the target assignment."""
    return _TARGET_PARTITION_BYTES * sum(map(len, share.values()))


class MemberState(IntEnum):
    """The state of a member, with the codes of its record; a share group's members are always stable."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """The member has not confirmed yet that it gave up ``pending_revocation``."""
    UNRELEASED_PARTITIONS = 2
    """Partitions of its target still belong to other members."""
    UNKNOWN = 127
