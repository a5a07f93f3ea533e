"""How a broker reaches ZooKeeper, who it is there, and which nodes nobody else may read; values, and nothing of kazoo.

The rules are Apache Kafka's. With ``owns_nodes`` a node is created so that only who has created it changes it; nodes
below ``sensitive`` are not shown to others either, and those of consumers stay everybody's. Whoever has created it is
who the connection has said it is, by TLS certificate, SASL or digest: all brokers have to be the same.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

JOURNAL: Final = "/oncelog_tree"
"""The adapter's own nodes, among them the last changes of all others."""
CONSUMERS: Final = "/consumers"
"""Nodes of consumers that balance through ZooKeeper: theirs, perhaps very many, and no metadata of the cluster."""


class Login(NamedTuple):
    """A name and a password. Not to be logged."""

    user: str
    password: str


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """Connection, identity and rights in ZooKeeper. Without anything: plain TCP, nobody in particular, nodes for
    everybody."""

    tls: Callable[[], ssl.SSLContext] | None = field(default=None, repr=False)
    """Gives the context of the next connection; it raises nothing."""
    sasl: Login | None = field(default=None, repr=False)
    """The login by SASL, DIGEST-MD5."""
    digest: Login | None = field(default=None, repr=False)
    """The login by ZooKeeper's own scheme of that name."""
    owns_nodes: bool = False
    """``zookeeper.set.acl``."""
    sensitive: tuple[str, ...] = ()
    """Paths whose nodes, and all below, only their owners read; the journal is one without being named."""

    def hides(self, path: str) -> bool:
        """True if the node of this path, without the chroot, is for its owner only."""
        return any(_is_below(path, each) for each in (JOURNAL, *self.sensitive))

    def shares(self, path: str) -> bool:
        """True if anybody may change the node of this path, without the chroot."""
        return not self.owns_nodes or _is_below(path, CONSUMERS)


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}/")
