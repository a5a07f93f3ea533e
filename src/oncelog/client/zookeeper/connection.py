"""Sessions with the ZooKeeper of a cluster, and the brokers that are registered there.

The client class is the brokers' own, of ``coordination.zookeeper_client``: of the coordination tree the client room
imports this module alone, and the values that it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from oncelog.base.tree import TreeUnavailable
from oncelog.client.errors import ClientError, ConfigError
from oncelog.client.machine.zookeeper_group.nodes import BROKERS, RegisteredBroker, read_broker

if TYPE_CHECKING:
    from oncelog.coordination.zookeeper_client import Watch, ZooKeeperClient


class ZooKeeperUnreachable(ClientError):
    """ZooKeeper does not answer at the address given."""


def open_session(
    connect: str, session_timeout_ms: int, connection_timeout_ms: int, changed: Callable[[], None] = lambda: None
) -> ZooKeeperClient:
    """A new session; ``connect`` is ``host:port,host:port/chroot``. ``changed`` is called when the connection has come
    back or the session has ended. Raises ZooKeeperUnreachable, and ConfigError without kazoo."""
    try:
        from oncelog.coordination.zookeeper_access import ZooKeeperAccess
        from oncelog.coordination.zookeeper_client import Address, ZooKeeperClient
    except ModuleNotFoundError as error:
        if error.name != "kazoo":
            raise
        raise ConfigError("ZooKeeper is asked through kazoo, which is missing: pip install oncelog[cluster]") from None
    try:
        access = ZooKeeperAccess()
        return ZooKeeperClient(Address.parse(connect), access, session_timeout_ms, connection_timeout_ms, changed)
    except TreeUnavailable as error:
        raise ZooKeeperUnreachable(str(error)) from None


def registered_brokers(
    session: ZooKeeperClient, protocol: str = "PLAINTEXT", watch: Watch | None = None
) -> list[RegisteredBroker]:
    """The brokers with a listener of a security protocol, by id. ``watch`` is set only where there is none."""
    names = session.children(BROKERS)
    if not names and watch is not None:
        session.exists(BROKERS, watch)
        names = session.children(BROKERS, watch)
    paths = [f"{BROKERS}/{name}" for name in sorted(names, key=lambda name: (len(name), name))]
    found = (None if node is None else read_broker(node[0], protocol) for _, node in session.get_all(paths))
    return [broker for broker in found if broker is not None]
