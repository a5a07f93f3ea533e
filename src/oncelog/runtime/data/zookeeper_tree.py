"""Opens the coordination tree in ZooKeeper as a broker's configuration says: addresses, TLS, and credentials.

Imported only if ``zookeeper.connect`` is set, because it needs kazoo.
"""

from __future__ import annotations

from collections.abc import Callable

from oncelog.coordination.zookeeper.access import Login, ZooKeeperAccess
from oncelog.coordination.zookeeper.acls import apply_acls
from oncelog.coordination.zookeeper.tree import ZooKeeperTree
from oncelog.node.assembly import StartRefused
from oncelog.node.listeners.broker_settings import BrokerConfig, ConfigError, StoreUnusable
from oncelog.node.listeners.zookeeper_settings import ROOTS, SENSITIVE, zookeeper_settings
from oncelog.runtime.tls.credentials import ClientCredentials


def open_zookeeper_tree(config: BrokerConfig, connect: str, session_timeout_ms: int) -> ZooKeeperTree:
    """The tree at ``connect``, not connected yet. Raises StartRefused."""
    try:
        access = zookeeper_access(config)
    except (ConfigError, StoreUnusable) as error:
        raise StartRefused(f"zookeeper.connect is set, but the connection cannot be configured: {error}") from None
    return ZooKeeperTree(connect, session_timeout_ms, config.get("zookeeper.connection.timeout.ms"), access)


def apply_node_acls(
    config: BrokerConfig, connect: str, session_timeout_ms: int, progress: Callable[[int], None]
) -> int:
    """Set the ACLs of a cluster's existing nodes as if this broker had created them; returns their number. Raises
    ConfigError, StoreUnusable, TreeUnavailable, SessionLost.
    """
    return apply_acls(connect, zookeeper_access(config), ROOTS, session_timeout_ms, progress)


def zookeeper_access(config: BrokerConfig) -> ZooKeeperAccess:
    """TLS and logins for connections to ZooKeeper. Raises ConfigError, StoreUnusable."""
    settings = zookeeper_settings(config)
    tls = None if settings.tls is None else ClientCredentials("ZooKeeper", settings.tls).context
    return ZooKeeperAccess(
        tls,
        None if settings.sasl is None else Login(*settings.sasl),
        None if settings.digest is None else Login(*settings.digest),
        settings.set_acl,
        SENSITIVE,
    )
