"""The parts of an image of the cluster; values, never changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from oncelog.base.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from oncelog.base.security import PLAINTEXT_LISTENER, Endpoint, SecurityProtocol
from oncelog.base.tree import ABSENT as ABSENT
from oncelog.base.tree import Change as Change

UNKNOWN_BROKER_EPOCH: Final = -1
"""A registration that is not known: a state node of an earlier version does not say in which one its leader leads."""
NO_CONFIGS: Final[Mapping[str, str]] = MappingProxyType({})


class Assignment(NamedTuple):
    """The replicas of a partition in order of preference, those being added and removed (KIP-455) among them."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()


class PartitionImage(NamedTuple):
    """A partition with its leader and leader epoch. ``version`` is that of its state node."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    version: int = 0
    leader_broker_epoch: int = UNKNOWN_BROKER_EPOCH
    """Epoch of the leader's registration at its election: a leader that has restarted does not lead by this one."""
    elr: tuple[BrokerId, ...] = ()
    """Eligible leaders: replicas out of the in-sync set that have all below the high watermark (KIP-966)."""
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()

    @property
    def assignment(self) -> Assignment:
        """The part of the partition that its topic's node holds."""
        return Assignment(self.replicas, self.adding, self.removing)

    def with_replicas_of(self, other: PartitionImage) -> PartitionImage:
        """The partition with the assignment of ``other``."""
        leader, leader_epoch, _, isr, version, broker_epoch, elr, _, _ = self
        return PartitionImage(
            leader, leader_epoch, other.replicas, isr, version, broker_epoch, elr, other.adding, other.removing
        )


class TopicImage(NamedTuple):
    """A topic. ``version`` and ``config_version`` are those of its nodes."""

    name: TopicName
    topic_id: TopicId
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str] = NO_CONFIGS
    version: int = 0
    config_version: int = ABSENT


FIRST_TREE_FORMAT: Final = 1
"""The format of trees that do not say theirs, and of brokers that do not say what they know."""


class TreeFormats(NamedTuple):
    """The formats of the coordination tree that a version of oncelog works with."""

    oldest: int = FIRST_TREE_FORMAT
    newest: int = FIRST_TREE_FORMAT


_NOT_SAID: Final = TreeFormats()


def endpoint_of(endpoints: Iterable[Endpoint], listener_name: str) -> Endpoint | None:
    """The endpoint of a listener; None if it is not among them."""
    return next((endpoint for endpoint in endpoints if endpoint.listener_name == listener_name), None)


class BrokerImage(NamedTuple):
    """A live broker. ``epoch`` rises with each registration of any broker."""

    broker_id: BrokerId
    host: str
    port: int
    rack: str | None
    epoch: int
    version: int = 0
    directory_id: str = ""
    """Id of its data directory; empty: registered by an earlier version."""
    fenced: bool = False
    """True until the controller has taken it out of the in-sync sets: it leads nothing and joins none."""
    in_controlled_shutdown: bool = False
    """True from when it asked the controller to move its leaderships away."""
    is_new_directory: bool = False
    """True if its directory never held what the replicas of this id had."""
    has_full_disk: bool = False
    """True from when its disk was full until there is room again: others lead what they have in sync with it."""
    endpoints: tuple[Endpoint, ...] = ()
    """The broker's listeners, by the addresses it advertises; empty: one, PLAINTEXT, at ``host`` and ``port``."""
    tree_formats: TreeFormats = _NOT_SAID

    @property
    def listeners(self) -> tuple[Endpoint, ...]:
        """The broker's endpoints, also where it has only the one at ``host`` and ``port``."""
        return self.endpoints or (Endpoint(PLAINTEXT_LISTENER, SecurityProtocol.PLAINTEXT, self.host, self.port),)

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """The endpoint of a listener; None if the broker does not have the listener."""
        return endpoint_of(self.listeners, listener_name)

    @property
    def may_lead(self) -> bool:
        """True if partitions may be given to it to lead."""
        return not (self.fenced or self.in_controlled_shutdown or self.has_full_disk)


class BrokerRecord(NamedTuple):
    """The lasting record of a broker's registrations. ``version`` rises with each of them: a Check of it names
    one registration, which a Check of the ephemeral node, made anew at version 0, does not."""

    directory_id: str
    epoch: int
    version: int = 0
    fenced: bool = False
    """True until the controller has ended the fencing of a registration, this one or one before it."""
    is_new_directory: bool = False
    sync_policy: str = ""
    """``log.sync.policy`` of the registration; empty: not said."""
    unregistered: bool = False
    """True from when an operator said that the broker is gone for good, until it registers again: nothing counts on it
    any more. What is known of its directory stays, so that an empty one of the same id is not taken for it."""
    rack: str | None = None
    endpoints: tuple[Endpoint, ...] = ()
    """The listeners of the registration; empty: registered by an earlier version."""

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """The endpoint that a listener had; None if the broker did not have the listener, or it is not known."""
        return endpoint_of(self.endpoints, listener_name)


class ConfigImage(NamedTuple):
    """The configs of a broker, all brokers, a group or a client metrics subscription."""

    configs: Mapping[str, str]
    version: int
    node: str = ""
    """The name of the node that holds them, below that of their kind."""
