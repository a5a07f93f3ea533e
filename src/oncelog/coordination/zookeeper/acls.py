"""Sets the ACLs of an existing tree in ZooKeeper to those that its nodes would be created with today.

Brokers may be running. They create nodes by their own configuration, so configure the login and ``zookeeper.set.acl``
on all of them first. The command can be interrupted and repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from oncelog.coordination.zookeeper.access import CONSUMERS, JOURNAL, ZooKeeperAccess
from oncelog.coordination.zookeeper.client import Address, ZooKeeperClient

_AT_ONCE: Final = 1_000


def apply_acls(
    connect: str,
    access: ZooKeeperAccess,
    roots: Sequence[str],
    session_timeout_ms: int,
    progress: Callable[[int], None],
) -> int:
    """Set the ACLs of the nodes at ``roots`` and below, of the adapter's own and consumers' nodes, and of the chroot,
    if any. Returns the number of nodes. ``progress(done)`` is called after each thousand.

    Raises TreeUnavailable, SessionLost after changing only some nodes; run it again.
    """
    address = Address.parse(connect)
    client = ZooKeeperClient(address, access, session_timeout_ms, session_timeout_ms, changed=lambda: None)
    # Nodes outside these roots may belong to another application.
    level = [*(["/"] if address.chroot else []), *roots, JOURNAL, CONSUMERS]
    done = 0
    try:
        while level:
            # Level by level: children are read only after their parents' ACLs are set.
            for paths in _parts(level):
                done += client.set_acls(paths)
                if len(paths) == _AT_ONCE:
                    progress(done)
            parents = [path for path in level if path != "/"]
            level = [f"{parent}/{name}" for parent, names in client.children_of(parents) for name in names]
    finally:
        client.stop()
    return done


def _parts(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(paths), _AT_ONCE):
        yield paths[start : start + _AT_ONCE]
