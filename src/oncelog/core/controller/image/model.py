"""The parts of a cluster image, all immutable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from oncelog.base.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from oncelog.base.security import PLAINTEXT_LISTENER, Endpoint, SecurityProtocol
from oncelog.base.tree import ABSENT as ABSENT
from oncelog.base.tree import Change as Change

UNKNOWN_BROKER_EPOCH: Final = -1
"""An unknown registration: state nodes of earlier versions lack their leader's registration."""
NO_CONFIGS: Final[Mapping[str, str]] = MappingProxyType({})


class Assignment(NamedTuple):
    """A partition's replicas in order of preference, including those being added and removed (KIP-455)."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()


class PartitionImage(NamedTuple):
    """``version`` is the version of the partition's state node."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    version: int = 0
    leader_broker_epoch: int = UNKNOWN_BROKER_EPOCH
    """The leader's registration at its election: a leader that has restarted no longer leads by it."""
    elr: tuple[BrokerId, ...] = ()
    """Eligible leaders: replicas outside the in-sync set that have everything below the high watermark (KIP-966)."""
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()

    @property
    def assignment(self) -> Assignment:
        return Assignment(self.replicas, self.adding, self.removing)

    def with_replicas_of(self, other: PartitionImage) -> PartitionImage:
        leader, leader_epoch, _, isr, version, broker_epoch, elr, _, _ = self
        return PartitionImage(
            leader, leader_epoch, other.replicas, isr, version, broker_epoch, elr, other.adding, other.removing
        )


class TopicImage(NamedTuple):
    """``version`` and ``config_version`` are the versions of the topic's nodes."""

    name: TopicName
    topic_id: TopicId
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str] = NO_CONFIGS
    version: int = 0
    config_version: int = ABSENT


FIRST_TREE_FORMAT: Final = 1
"""The format of trees and brokers that do not state one."""


class TreeFormats(NamedTuple):
    """The tree formats that a version of oncelog supports."""

    oldest: int = FIRST_TREE_FORMAT
    newest: int = FIRST_TREE_FORMAT


_NOT_SAID: Final = TreeFormats()


class FeatureRange(NamedTuple):
    """The levels of a feature that a broker supports."""

    low: int
    high: int


NO_FEATURES: Final[Mapping[str, FeatureRange]] = MappingProxyType({})


def endpoint_of(endpoints: Iterable[Endpoint], listener_name: str) -> Endpoint | None:
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
    """Empty if an earlier version registered the broker."""
    fenced: bool = False
    """True until the controller has removed it from the in-sync sets. A fenced broker leads nothing and joins no set.
    """
    in_controlled_shutdown: bool = False
    """True once it has asked the controller to move its leaderships away."""
    is_new_directory: bool = False
    """True if its directory never held the data of this id's replicas."""
    has_full_disk: bool = False
    """True while its disk is full: other in-sync replicas lead its partitions."""
    endpoints: tuple[Endpoint, ...] = ()
    """The advertised listeners; empty: one PLAINTEXT listener at ``host`` and ``port``."""
    tree_formats: TreeFormats = _NOT_SAID
    features: Mapping[str, FeatureRange] = NO_FEATURES
    """Empty if an earlier version registered the broker."""
    freeze_timeout_ms: int = 0
    """``oncelog.broker.freeze.timeout.ms``. 0, also of earlier versions: after a pause it counts on its session."""

    @property
    def listeners(self) -> tuple[Endpoint, ...]:
        """The endpoints, including an implied one at ``host`` and ``port``."""
        return self.endpoints or (Endpoint(PLAINTEXT_LISTENER, SecurityProtocol.PLAINTEXT, self.host, self.port),)

    def endpoint(self, listener_name: str) -> Endpoint | None:
        return endpoint_of(self.listeners, listener_name)

    @property
    def may_lead(self) -> bool:
        return not (self.fenced or self.in_controlled_shutdown or self.has_full_disk)


class BrokerRecord(NamedTuple):
    """``version`` rises with each registration of the broker."""

    directory_id: str
    epoch: int
    version: int = 0
    fenced: bool = False
    """True until the controller has ended the fencing of this or an earlier registration."""
    is_new_directory: bool = False
    sync_policy: str = ""
    """``log.sync.policy`` of the registration; empty if unknown."""
    unregistered: bool = False
    """True after an operator declared the broker gone, until it registers again. Its directory's facts stay, so that an
    empty directory of the same id is not mistaken for it.
    """
    rack: str | None = None
    endpoints: tuple[Endpoint, ...] = ()
    """The listeners of the registration; empty if an earlier version registered it."""

    def endpoint(self, listener_name: str) -> Endpoint | None:
        return endpoint_of(self.endpoints, listener_name)


UNKNOWN_MS: Final = -1


class Suspicion(NamedTuple):
    """A broker's suspicion that another is frozen. ``epoch`` is the suspect's registration; ``version`` rises each time
    that the observer finds it so again."""

    epoch: int
    version: int = 0
    since_ms: int = UNKNOWN_MS
    """The suspect's last sign of life, by the observer's clock; −1 from one of an earlier version."""


class ConfigImage(NamedTuple):
    """Configs of a broker, all brokers, a group or a client metrics subscription."""

    configs: Mapping[str, str]
    version: int
    node: str = ""
    """The name of their node."""
