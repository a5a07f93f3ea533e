"""The ACLs of a tree that is in ZooKeeper already: its nodes get those that they would be created with today.

Brokers may be running. They create nodes as their own configuration says, so all of them log in, and have
``zookeeper.set.acl`` as it is to be, before this is done; a node made meanwhile is as it should be, and one deleted
meanwhile is none. It may be interrupted, and done again.
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
    """Give the nodes at ``roots`` and below, with the adapter's own and those of consumers, the ACLs that ``access``
    creates them with, and the chroot its own, if there is one; the number of nodes. ``progress(done)`` is called after
    each thousand. What is not at these roots may be another application's, and is left alone.

    Raises TreeUnavailable, SessionLost: some nodes have been changed then, and others not; run it again.
    """
    address = Address.parse(connect)
    client = ZooKeeperClient(address, access, session_timeout_ms, session_timeout_ms, changed=lambda: None)
    level = [*(["/"] if address.chroot else []), *roots, JOURNAL, CONSUMERS]
    done = 0
    try:
        while level:
            for paths in _parts(level):
                done += client.give_acls(paths)
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
