"""Offsets of a group as values: what is committed, and as whom."""

from __future__ import annotations

from typing import NamedTuple


class Committed(NamedTuple):
    """A committed offset: the next record to read."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class GroupMetadata(NamedTuple):
    """A consumer's place in its group, so that a zombie's offsets are refused with its transaction (KIP-447).

    The defaults fence nobody: for offsets that are not read by a member of a group.
    """

    group: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
