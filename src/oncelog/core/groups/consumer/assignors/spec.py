"""The input and output of an assignor. Pure values, which a worker thread may read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from oncelog.base.ids import MemberId, TopicId
from oncelog.core.groups.modern.members import Partitions

Assignment = dict[MemberId, dict[TopicId, frozenset[int]]]
"""The partitions of each member, by topic; every member has an entry."""


class MemberSpec(NamedTuple):
    """A member as an assignor sees it."""

    topics: frozenset[TopicId]
    """Subscribed topics that exist."""
    assigned: Partitions
    """The member's share of the target assignment before."""
    instance_id: str | None = None


class GroupSpec(NamedTuple):
    """A group as an assignor sees it."""

    members: Mapping[MemberId, MemberSpec]
    partition_counts: Mapping[TopicId, int]
    """The partitions of every subscribed topic."""
