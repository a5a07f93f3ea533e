"""The coordination tree of a broker that was alone, copied into an empty one: node by node, in several commits.

Rules:
1. The cluster's id is written last. Until then the target is no cluster's: no broker of the adopted one joins it, and
   a copy that was interrupted is begun anew.
2. A node of the target says meanwhile whose copy is under way, so that nobody else's nodes are ever taken for a half of
   it.
3. What belongs to sessions, registrations and the controller's place, stays behind: brokers write it as they join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from oncelog.base.tree import MAX_COMMIT_BYTES, Conflict, Create, Delete, Operation, TreeNode, commit_size
from oncelog.core.controller.image import layout
from oncelog.ports import Coordination

OURS: Final = "/oncelog"
COPYING: Final = "/oncelog/adopting"
"""Holds the cluster's id while its tree is copied."""
MOST_OPERATIONS: Final = 1_000
_ENTITY_PARENTS: Final = (layout.BROKER_CONFIGS, layout.GROUP_CONFIGS, layout.CLIENT_METRICS_CONFIGS)


class CopyRefused(Exception):
    """The tree cannot be copied there; the message says why. Nothing was changed that matters to anybody."""


def copy_tree(source: Coordination, target: Coordination, progress: Callable[[int, int], None]) -> int:
    """Copy what lasts of ``source`` to ``target``, which is empty, or has a part of this copy, or all of it; the number
    of nodes. ``progress(done, total)`` is called after each commit. Nobody may write to ``source`` meanwhile.

    Raises CopyRefused, TreeUnavailable, OutcomeUnknown, SessionLost: run it again.
    """
    _, nodes = source.snapshot()
    cluster_id = next((node.value for node in nodes if node.path == layout.CLUSTER_ID), None)
    if cluster_id is None:
        raise CopyRefused("its tree is that of no cluster yet; the broker has never been up")
    lasting = [node for node in nodes if not _is_of_session(node.path)]
    there = target.read(layout.CLUSTER_ID)
    if there is not None:
        ours, theirs = (layout.read_cluster_id(layout.CLUSTER_ID, value) for value in (cluster_id, there.value))
        if ours != theirs:
            raise CopyRefused(f"the tree in ZooKeeper is that of cluster {theirs}, the directory belongs to {ours}")
        return len(lasting)  # all of it was copied before
    try:
        _begin(target, cluster_id)
        _write(target, lasting, progress)
        marker = target.read(COPYING)
        if marker is not None:
            target.commit([Create(layout.CLUSTER_ID, cluster_id), Delete(COPYING, marker.version)])
    except Conflict as conflict:
        raise CopyRefused(f"somebody else writes to the tree in ZooKeeper: {conflict}") from None
    return len(lasting)


def _is_of_session(path: str) -> bool:
    return path == layout.CONTROLLER or path.startswith(f"{layout.BROKER_IDS}/")


def _begin(target: Coordination, cluster_id: bytes) -> None:
    """Mark the target, and take away what an interrupted copy has left. Raises CopyRefused, Conflict."""
    marker, left = target.read(COPYING), target.subtree("/")
    if marker is None:
        if left:
            raise CopyRefused(
                f"the path in ZooKeeper is not empty, it has {left[0].path}: name one that is, "
                "as in host:2181/oncelog, which is created"
            )
        target.commit([Create(OURS, b""), Create(COPYING, cluster_id)])
        return
    if marker.value != cluster_id:
        raise CopyRefused("the directory of another broker is being adopted there")
    children_first = sorted((node for node in left if node.path not in (OURS, COPYING)), key=_path, reverse=True)
    for part in _commits(Delete(node.path, node.version) for node in children_first):
        target.commit(part)


def _path(node: TreeNode) -> str:
    return node.path


def _write(target: Coordination, nodes: Sequence[TreeNode], progress: Callable[[int, int], None]) -> None:
    """Create all nodes but the cluster's id, parents first."""
    parents_first = sorted((node for node in nodes if node.path not in (OURS, layout.CLUSTER_ID)), key=_path)
    done = 0
    for part in _commits(Create(_encoded(node.path), node.value) for node in parents_first):
        target.commit(part)
        done += len(part)
        progress(done, len(nodes))


def _encoded(path: str) -> str:
    """The path with a name that ZooKeeper takes: SQLite has taken ``.`` and ``..`` too."""
    parent, _, name = path.rpartition("/")
    return f"{parent}/{layout.entity_name(layout.entity_of(name))}" if parent in _ENTITY_PARENTS else path


def _commits(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    """The operations in commits that every tree takes."""
    part: list[Operation] = []
    size_bytes = 0
    for operation in operations:
        own_bytes = commit_size([operation])
        if part and (size_bytes + own_bytes > MAX_COMMIT_BYTES or len(part) == MOST_OPERATIONS):
            yield part
            part, size_bytes = [], 0
        part.append(operation)
        size_bytes += own_bytes
    if part:
        yield part
