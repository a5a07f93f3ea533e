"""Runs a member's steps over its ZooKeeper session and its own client of the brokers.

A step without a connection returns ``Unavailable`` and is repeated; an error of the brokers returns ``Failed``. Only
internal errors are raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from oncelog.base.ids import CONSUMER_OFFSETS, TopicPartition
from oncelog.base.tree import OutcomeUnknown, SessionLost, TreeUnavailable
from oncelog.client.blocking.client import EARLIEST, LATEST, Client
from oncelog.client.errors import ClientError, NoBrokerReachable, UnknownTopic
from oncelog.client.machine.offsets import Committed
from oncelog.client.programs.group import commit_offsets, committed_offsets
from oncelog.legacy.zookeeper_groups.connection import ZooKeeperUnreachable, registered_brokers
from oncelog.legacy.zookeeper_groups.machine.nodes import RegisteredBroker, ids_path, owner_path, topic_path
from oncelog.legacy.zookeeper_groups.machine.settings import ZooKeeperGroupSettings
from oncelog.legacy.zookeeper_groups.machine.starting_offsets import Storage, Stored
from oncelog.legacy.zookeeper_groups.machine.steps import (
    Claim,
    Commit,
    Connect,
    Disconnect,
    Done,
    Ends,
    Failed,
    FindEnds,
    FindOffsets,
    ReadGroup,
    Register,
    Release,
    Renew,
    SessionEnded,
    Step,
    StepOutcome,
    StopDelivery,
    Taken,
    Unavailable,
    Unregistered,
)
from oncelog.legacy.zookeeper_groups.machine.subscription import Subscription
from oncelog.legacy.zookeeper_groups.stored_offsets import read_offsets, write_offsets

if TYPE_CHECKING:
    from oncelog.coordination.zookeeper.client import ZooKeeperClient
    from oncelog.legacy.zookeeper_groups.group_nodes import GroupNodes

Opening = Callable[[Callable[[], None]], "ZooKeeperClient"]
"""Opens a session; the argument is called when its connection is restored or it has ended."""
Connecting = Callable[[list[RegisteredBroker]], Client]
"""Creates a client of the registered brokers."""
_NO_SESSION: Final = TreeUnavailable("there is no session with ZooKeeper")


class StepRunner:
    """``changed`` is called by kazoo's thread, ``stop_delivery`` by ``run``."""

    def __init__(
        self,
        opening: Opening,
        consumer: str,
        subscription: Subscription,
        settings: ZooKeeperGroupSettings,
        *,
        protocol: str,
        connecting: Connecting,
        changed: Callable[[], None],
        stop_delivery: Callable[[], None],
    ) -> None:
        self._opening = opening
        self._subscription = subscription
        self._settings = settings
        self._protocol = protocol
        self._connecting = connecting
        self._changed = changed
        self._stop_delivery = stop_delivery
        self._path = f"{ids_path(settings.group)}/{consumer}"
        self._session: ZooKeeperClient | None = None
        self._nodes: GroupNodes | None = None
        self._client: Client | None = None
        self._owned: tuple[TopicPartition, ...] = ()

    @property
    def brokers(self) -> list[RegisteredBroker]:
        return [] if self._nodes is None else self._nodes.brokers

    def open(self) -> None:
        """Open a session. Raises ZooKeeperUnreachable, and ConfigError without kazoo."""
        self.close()
        self._session = self._opening(self._changed)
        from oncelog.legacy.zookeeper_groups.group_nodes import GroupNodes

        self._nodes = GroupNodes(self._session, self._settings.group, self._watched)

    def close(self) -> None:
        if self._session is not None:
            self._session.stop()
            self._session = self._nodes = None
        if self._client is not None:
            self._client.close()
            self._client = None

    def run(self, step: Step) -> StepOutcome:
        try:
            return self._do(step)
        except SessionLost:
            return SessionEnded()
        except (TreeUnavailable, OutcomeUnknown, ZooKeeperUnreachable) as error:
            is_connected = self._session is not None and self._session.connected
            return Unavailable(f"{error}; retrying" if is_connected else "")
        except ClientError as error:
            return self._failed(error)

    def _do(self, step: Step) -> StepOutcome:
        match step:
            case Connect():
                if self._session is None or self._session.lost:  # The first session is already open.
                    self.open()
            case Disconnect():
                self.close()
            case StopDelivery():
                self._stop_delivery()
            case Register(path, value):
                outcome = self._tree.register(path, value)
                return Taken(path, "another consumer of the same id") if isinstance(outcome, Taken) else outcome
            case Renew(path):
                return Done() if self._tree.is_registered(path) else Unregistered()
            case ReadGroup():
                excluded = self._settings.exclude_internal_topics
                return self._tree.read_group(self._subscription, exclude_internal=excluded, protocol=self._protocol)
            case Claim(owners):
                self._owned = tuple(owners)
                return self._tree.claim(self._path, owners)
            case Release(owners):
                self._tree.release(owners)
            case FindOffsets(partitions):
                return self._read_offsets(partitions)
            case FindEnds(partitions, smallest):
                queries = dict.fromkeys(partitions, EARLIEST if smallest else LATEST)
                return Ends({p: end.offset for p, end in self._brokers_client().list_offsets(queries).items()})
            case Commit(stores):
                for storage, offsets in stores:
                    self._commit(storage, offsets)
        return Done()

    def _failed(self, error: ClientError) -> Failed:
        """Unreachable brokers may have moved, so their addresses are read again. An unknown topic that is in the tree
        will soon be known to the brokers.
        """
        client, self._client = self._client, None
        passes = isinstance(error, NoBrokerReachable | UnknownTopic)
        if client is not None:
            passes = passes or client.may_pass(error)
            client.close()
        return Failed(str(error), final=not passes)

    @property
    def _tree(self) -> GroupNodes:
        if self._nodes is None:
            raise _NO_SESSION
        return self._nodes

    def _watched(self, _event: object) -> None:
        self._changed()

    def _brokers_client(self) -> Client:
        if self._client is None:
            if self._session is None:
                raise _NO_SESSION
            self._client = self._connecting(registered_brokers(self._session, self._protocol))
        return self._client

    def _read_offsets(self, partitions: tuple[TopicPartition, ...]) -> Stored:
        """Kafka's offsets are requested if they count or, for a warning, if the cluster has stored offsets before: the
        request would create the topic.
        """
        if self._session is None:
            raise _NO_SESSION
        settings = self._settings
        in_zookeeper = read_offsets(self._session, settings.group, partitions)
        counts = settings.storage is Storage.KAFKA or settings.dual_commit
        in_kafka: Mapping[TopicPartition, int] = {}
        if counts or self._session.exists(topic_path(CONSUMER_OFFSETS)) is not None:
            try:
                listed = committed_offsets(self._brokers_client(), settings.group, partitions)
                in_kafka = {partition: committed.offset for partition, committed in listed.items()}
            except ClientError:
                if counts:
                    raise
        return Stored(in_zookeeper, in_kafka)

    def _commit(self, storage: Storage, offsets: Mapping[TopicPartition, int]) -> None:
        if storage is Storage.KAFKA:
            committed = {partition: Committed(offset) for partition, offset in offsets.items()}
            commit_offsets(self._brokers_client(), self._settings.group, committed)
            return
        if self._session is None:
            raise _NO_SESSION
        from oncelog.coordination.zookeeper.client import Refused

        group = self._settings.group
        try:
            write_offsets(self._session, group, offsets, {p: owner_path(group, p) for p in offsets})
        except Refused as refusal:
            raise ClientError(f"the group's owner nodes no longer exist ({refusal})") from None
