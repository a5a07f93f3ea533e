"""The steps that the machine asks for, one at a time, and what may come of them.

A step that cannot be answered because there is no connection comes back as ``Unavailable`` and is asked for again:
each of them may be done twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.base.ids import TopicPartition
from oncelog.legacy.zookeeper_groups.machine.assignment import Picture
from oncelog.legacy.zookeeper_groups.machine.starting_offsets import Storage, Stored


@dataclass(frozen=True, slots=True)
class Connect:
    """Begin a session with ZooKeeper in place of any before. Comes back as ``Done``."""


@dataclass(frozen=True, slots=True)
class Register:
    """Create the consumer's own node, ephemeral, with its parents. Comes back as ``Done``, also where the node is this
    session's already, or as ``Taken``."""

    path: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Renew:
    """See that the consumer's own node is there: the session is alive. Comes back as ``Done`` or ``Unregistered``."""

    path: str


@dataclass(frozen=True, slots=True)
class StopDelivery:
    """Stop fetching, drop what is fetched, and let the application finish for a while what it holds. ``Done``."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Write offsets to the storages, one after the other; to ZooKeeper only while the owners' nodes are there. Comes
    back as ``Done`` or ``Failed``."""

    stores: tuple[tuple[Storage, Mapping[TopicPartition, int]], ...]


@dataclass(frozen=True, slots=True)
class Release:
    """Delete the owners' nodes that are still this session's. ``Done``."""

    owners: Mapping[TopicPartition, str]


@dataclass(frozen=True, slots=True)
class Look:
    """Read registrations and topics, watches set before. Comes back as a ``Picture``."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Create the owners' nodes, all or none, while the consumer is registered. Comes back as ``Done`` (also where nodes
    are this session's already), ``Taken`` or ``Unregistered``."""

    owners: Mapping[TopicPartition, str]


@dataclass(frozen=True, slots=True)
class FindOffsets:
    """Read the group's offsets: from both storages where they are there. Comes back as ``Stored`` or ``Failed``."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class FindEnds:
    """The first or the next offset of partitions' logs. Comes back as ``Ends`` or ``Failed``."""

    partitions: tuple[TopicPartition, ...]
    smallest: bool


@dataclass(frozen=True, slots=True)
class Disconnect:
    """End the session; its ephemeral nodes go with it. ``Done``."""


Step = Connect | Register | Renew | StopDelivery | Commit | Release | Look | Claim | FindOffsets | FindEnds | Disconnect


class Done(NamedTuple):
    """The step is done."""


class Taken(NamedTuple):
    """A node to be created is somebody else's; a watch for its end is set."""

    path: str
    owner: str


class Unregistered(NamedTuple):
    """The consumer's own node is gone although the session lives: somebody has deleted it."""


class Unavailable(NamedTuple):
    """A step to be asked for again: there is no connection, the answer was lost, or ZooKeeper forbids it."""

    reason: str = ""
    """The reason, where it is worth a remark."""


class SessionEnded(NamedTuple):
    """ZooKeeper has ended the session."""


class Failed(NamedTuple):
    """The brokers did not do it; ``final`` if they never will."""

    reason: str
    final: bool = False


class Ends(NamedTuple):
    """The offsets asked for."""

    offsets: Mapping[TopicPartition, int]


Outcome = Done | Taken | Unregistered | Unavailable | SessionEnded | Failed | Ends | Picture | Stored
