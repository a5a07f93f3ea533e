"""ZooKeeper sessions, and clients of the brokers registered there.

Only this module imports the coordination tree, beside its values: ``coordination.zookeeper.client``, the brokers' own
client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from oncelog.base.tree import TreeUnavailable
from oncelog.client.blocking.client import Client
from oncelog.client.config import Address, ClientConfig
from oncelog.client.errors import ClientError, ConfigError
from oncelog.legacy.zookeeper_groups.machine.nodes import BROKERS, RegisteredBroker, read_broker

if TYPE_CHECKING:
    from oncelog.coordination.zookeeper.client import Watch
    from oncelog.coordination.zookeeper.client import ZooKeeperClient as ZooKeeperClient


_VERSION_OF_0_8: Final = 1  # The version of a 0.8 broker's registration.


class ZooKeeperUnreachable(ClientError):
    """ZooKeeper does not answer at the given address."""


def open_session(
    connect: str, session_timeout_ms: int, connection_timeout_ms: int, changed: Callable[[], None] = lambda: None
) -> ZooKeeperClient:
    """Open a session at ``host:port,host:port/chroot``. ``changed`` is called when the connection is restored or the
    session has ended. Raises ZooKeeperUnreachable, and ConfigError without kazoo.
    """
    try:
        from oncelog.coordination.zookeeper.access import ZooKeeperAccess
        from oncelog.coordination.zookeeper.client import Address, ZooKeeperClient
    except ModuleNotFoundError as error:
        if error.name != "kazoo":
            raise
        raise ConfigError("ZooKeeper needs the package kazoo: pip install 'oncelog[cluster]'") from None
    try:
        access = ZooKeeperAccess()
        return ZooKeeperClient(Address.parse(connect), access, session_timeout_ms, connection_timeout_ms, changed)
    except TreeUnavailable as error:
        raise ZooKeeperUnreachable(str(error)) from None


def protocol_of(settings: Mapping[str, str]) -> str:
    return settings.get("security.protocol", "PLAINTEXT").upper()


def client_of(brokers: Sequence[RegisteredBroker], config: ClientConfig) -> Client:
    """A client of registered brokers. Raises ConfigError if there are none. With one of 0.8 or 0.9, no broker's API
    versions are requested.
    """
    if not brokers:
        raise ConfigError(
            "no broker registered in ZooKeeper has a listener of the client's security.protocol; set another one"
        )
    oldest = min(broker.version for broker in brokers)
    if not config.assumed_broker_version and not all(broker.knows_versions for broker in brokers):
        config = replace(config, assumed_broker_version="0.8" if oldest <= _VERSION_OF_0_8 else "0.9")
    return Client([str(Address(broker.host, broker.port)) for broker in brokers], config=config)


def registered_brokers(
    session: ZooKeeperClient, protocol: str = "PLAINTEXT", watch: Watch | None = None
) -> list[RegisteredBroker]:
    """The brokers with a listener of the security protocol, by id. ``watch`` is set only if there are none."""
    names = session.children(BROKERS)
    if not names and watch is not None:
        session.exists(BROKERS, watch)
        names = session.children(BROKERS, watch)
    paths = [f"{BROKERS}/{name}" for name in sorted(names, key=lambda name: (len(name), name))]
    registrations = (None if node is None else read_broker(node[0], protocol) for _, node in session.get_all(paths))
    return [broker for broker in registrations if broker is not None]
