"""How a broker reaches ZooKeeper, who it is there, and which nodes nobody else may read; values, and nothing of kazoo.

The rules are Apache Kafka's. With ``owns_nodes`` a node is created so that only who has created it changes it; nodes
below ``SENSITIVE`` are not shown to others either. Whoever has created it is who the connection has said it is, by TLS
certificate, SASL or digest: all brokers have to be the same.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

JOURNAL: Final = "/oncelog_tree"
"""The adapter's own nodes, among them the last changes of all others."""


class Login(NamedTuple):
    """A name and a password. Not to be logged."""

    user: str
    password: str


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """See the module. Without anything: plain TCP, nobody in particular, nodes for everybody."""

    tls: Callable[[], ssl.SSLContext] | None = field(default=None, repr=False)
    """Gives the context of the next connection; it raises nothing."""
    sasl: Login | None = field(default=None, repr=False)
    """By SASL, DIGEST-MD5."""
    digest: Login | None = field(default=None, repr=False)
    """By ZooKeeper's own scheme of that name."""
    owns_nodes: bool = False
    """``zookeeper.set.acl``."""
    sensitive: tuple[str, ...] = ()
    """Paths whose nodes, and all below, only their owners read; the journal is one without being named."""

    def hides(self, path: str) -> bool:
        """True if the node of this path, without the chroot, is for its owner only."""
        return any(path == each or path.startswith(f"{each}/") for each in (JOURNAL, *self.sensitive))
