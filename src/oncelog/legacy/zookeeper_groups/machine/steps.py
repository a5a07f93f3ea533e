"""The steps that the machine requests, one at a time, and their outcomes.

Without a connection the outcome is ``Unavailable``, and the step is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.base.ids import TopicPartition
from oncelog.legacy.zookeeper_groups.machine.assignment import GroupSnapshot
from oncelog.legacy.zookeeper_groups.machine.starting_offsets import Storage, Stored


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a session in place of any earlier one. Returns ``Done``."""


@dataclass(frozen=True, slots=True)
class Register:
    """Create the consumer's own ephemeral node. Returns ``Done``, also if this session has it, or ``Taken``."""

    path: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Renew:
    """Check that the consumer's own node exists, so that the session is alive. Returns ``Done`` or ``Unregistered``."""

    path: str


@dataclass(frozen=True, slots=True)
class StopDelivery:
    """Stop fetching, drop fetched records, and let the application briefly finish those it holds. Returns ``Done``."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Write offsets to the storages, one after the other; to ZooKeeper only while the owner nodes exist.

    Returns ``Done`` or ``Failed``.
    """

    stores: tuple[tuple[Storage, Mapping[TopicPartition, int]], ...]


@dataclass(frozen=True, slots=True)
class Release:
    """Delete the owner nodes that this session still owns. Returns ``Done``."""

    owners: Mapping[TopicPartition, str]


@dataclass(frozen=True, slots=True)
class ReadGroup:
    """Read registrations and topics, with watches set before. Returns a ``GroupSnapshot``."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Create the owner nodes, all or none, while the consumer is registered. Returns ``Done`` (also if this session has
    them), ``Taken`` or ``Unregistered``.
    """

    owners: Mapping[TopicPartition, str]


@dataclass(frozen=True, slots=True)
class FindOffsets:
    """Read the group's offsets from both storages, if they exist. Returns ``Stored`` or ``Failed``."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class FindEnds:
    """Read the first or the next offset of partitions' logs. Returns ``Ends`` or ``Failed``."""

    partitions: tuple[TopicPartition, ...]
    smallest: bool


@dataclass(frozen=True, slots=True)
class Disconnect:
    """End the session and its ephemeral nodes. Returns ``Done``."""


Step = (
    Connect
    | Register
    | Renew
    | StopDelivery
    | Commit
    | Release
    | ReadGroup
    | Claim
    | FindOffsets
    | FindEnds
    | Disconnect
)


class Done(NamedTuple):
    """The step is done."""


class Taken(NamedTuple):
    """Another session owns a node to be created; a watch for its deletion is set."""

    path: str
    owner: str


class Unregistered(NamedTuple):
    """The consumer's own node was deleted although the session lives."""


class Unavailable(NamedTuple):
    """The step must be repeated: no connection, a lost answer, or a refusal by ZooKeeper."""

    reason: str = ""
    """The reason, if the user should see it."""


class SessionEnded(NamedTuple):
    """ZooKeeper has ended the session."""


class Failed(NamedTuple):
    """The brokers rejected the step; ``final`` if repeating it is useless."""

    reason: str
    final: bool = False


class Ends(NamedTuple):
    offsets: Mapping[TopicPartition, int]


StepOutcome = Done | Taken | Unregistered | Unavailable | SessionEnded | Failed | Ends | GroupSnapshot | Stored
