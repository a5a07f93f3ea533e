"""How a broker connects and logs in to ZooKeeper, and which nodes only their owners may read. Values; no kazoo.

The rules are Apache Kafka's. With ``owns_nodes`` only its creator may change a node; nodes below ``sensitive`` are also
hidden, and consumers' nodes stay open. The creator is the identity from the connection's TLS certificate, SASL or
digest: all brokers must use the same one.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

JOURNAL: Final = "/oncelog_tree"
"""The adapter's own nodes. They include recent changes of all other nodes."""
CONSUMERS: Final = "/consumers"
"""Nodes of consumers that rebalance through ZooKeeper: possibly very many, and not cluster metadata."""


class Login(NamedTuple):
    """A user and a password. Do not log it."""

    user: str
    password: str


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """Connection, identity and permissions. The default is plain TCP, no login, and open nodes."""

    tls: Callable[[], ssl.SSLContext] | None = field(default=None, repr=False)
    """Returns the context of the next connection; never raises."""
    sasl: Login | None = field(default=None, repr=False)
    """The SASL login, DIGEST-MD5."""
    digest: Login | None = field(default=None, repr=False)
    """The login by ZooKeeper's digest scheme."""
    owns_nodes: bool = False
    """``zookeeper.set.acl``."""
    sensitive: tuple[str, ...] = ()
    """Paths whose nodes, with all below, only their owners read; the journal is always one."""

    def hides(self, path: str) -> bool:
        """True if only its owner may read the node of this path (without the chroot)."""
        return any(_is_below(path, hidden) for hidden in (JOURNAL, *self.sensitive))

    def shares(self, path: str) -> bool:
        """True if everybody may change the node of this path (without the chroot)."""
        return not self.owns_nodes or _is_below(path, CONSUMERS)


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}/")
