"""The coordination tree of a broker that was alone, copied into an empty one: node by node, in several commits.

1. The cluster's id is written last, by ``complete``. Until then no broker joins, and an interrupted copy starts from
   the beginning.
2. Until then a node of the target names the broker whose copy is under way, so that other nodes are never taken for a
   part of it.
3. Nodes of sessions (registrations, the controller) are not copied: brokers write them as they join.
4. Nodes of consumers that balance through ZooKeeper overwrite existing ones: the tree in ZooKeeper does not list them,
   and always has their parent.
5. The source is set aside between the copy and ``complete``. Before that, the broker may run alone again, and the next
   copy has its changes; afterwards the adoption can only be completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from oncelog.base.tree import MAX_COMMIT_BYTES, Conflict, Create, Delete, Operation, Set, TreeNode, commit_size
from oncelog.core.controller.image import layout
from oncelog.ports import Coordination

OURS: Final = "/oncelog"
_CONSUMERS: Final = "/consumers"
MOST_OPERATIONS: Final = 1_000
_ENTITY_PARENTS: Final = (layout.BROKER_CONFIGS, layout.GROUP_CONFIGS, layout.CLIENT_METRICS_CONFIGS)


class CopyRefused(Exception):
    """The tree cannot be copied to this target, which is unchanged."""


@dataclass(frozen=True)
class Copied:
    """A tree that is copied but for its end."""

    count: int
    """The number of its nodes."""
    cluster_id: bytes


def copy_tree(
    source: Coordination, target: Coordination, progress: Callable[[int, int], None], *, is_aside: bool = False
) -> Copied:
    """Copies the persistent nodes of ``source``, except the cluster's id, to a target that is empty or has part of this
    copy.

    ``is_aside``: an earlier run set the source aside, so the target must have part of it. ``progress(done, total)`` is
    called after each commit. Nothing else may write to ``source`` meanwhile. Raises CopyRefused; TreeUnavailable,
    OutcomeUnknown and SessionLost mean: run it again.
    """
    _, nodes = source.snapshot()
    cluster_id = next((node.value for node in nodes if node.path == layout.CLUSTER_ID), None)
    if cluster_id is None:
        raise CopyRefused(
            "its coordination tree has no cluster id yet: start the broker once, and run the command again"
        )
    lasting = [node for node in nodes if not _is_of_session(node.path)]
    stored_id = target.read(layout.CLUSTER_ID)
    if stored_id is not None:
        _check_same_cluster(cluster_id, stored_id.value)
        if not is_aside:
            _check_same_nodes(target, lasting)
        return Copied(len(lasting), cluster_id)  # all of it was copied before
    try:
        _begin(target, cluster_id, is_aside=is_aside)
        _write(target, lasting, progress)
    except Conflict as conflict:
        raise CopyRefused(
            f"another process writes to the tree in ZooKeeper ({conflict}): stop it, and run the command again"
        ) from None
    return Copied(len(lasting), cluster_id)


def complete(target: Coordination, cluster_id: bytes) -> None:
    """Makes a copied tree a cluster that brokers may join. Raises the errors of ``copy_tree``."""
    stored_id, marker = target.read(layout.CLUSTER_ID), target.read(layout.ADOPTING)
    if stored_id is not None:
        _check_same_cluster(cluster_id, stored_id.value)
        return
    if marker is None:
        raise CopyRefused("another process has removed the copy from ZooKeeper: run the command again")
    try:
        target.commit([Create(layout.CLUSTER_ID, cluster_id), Delete(layout.ADOPTING, marker.version)])
    except Conflict as conflict:
        raise CopyRefused(
            f"another process writes to the tree in ZooKeeper ({conflict}): stop it, and run the command again"
        ) from None


def _check_same_cluster(ours: bytes, theirs: bytes) -> None:
    own, other = (layout.read_cluster_id(layout.CLUSTER_ID, value) for value in (ours, theirs))
    if own != other:
        raise CopyRefused(
            f"the tree in ZooKeeper belongs to cluster {other}, the directory to {own}: name another path"
        )


def _check_same_nodes(target: Coordination, lasting: Sequence[TreeNode]) -> None:
    """Raises CopyRefused if the broker ran alone after its tree was copied: those changes are in no cluster."""
    copied = {node.path: node.value for node in target.subtree("/")}
    for node in lasting:
        path = _encoded(node.path)
        if _is_of_consumers(path):
            continue
        if copied.get(path) != node.value:
            raise CopyRefused(
                f"the tree in ZooKeeper is that of this cluster already, and differs from the directory's ({path}): "
                "one of them was used after the copy. If no broker has used the one in ZooKeeper, delete its path "
                "there, and run the command again"
            )


def _is_of_consumers(path: str) -> bool:
    return path == _CONSUMERS or path.startswith(f"{_CONSUMERS}/")


def _is_of_session(path: str) -> bool:
    return path == layout.CONTROLLER or path.startswith(f"{layout.BROKER_IDS}/")


def _begin(target: Coordination, cluster_id: bytes, *, is_aside: bool) -> None:
    """Marks the target and deletes the rest of an interrupted copy. Raises CopyRefused, Conflict."""
    marker, left = target.read(layout.ADOPTING), target.subtree("/")
    if marker is None:
        if is_aside:
            raise CopyRefused("it was adopted into another path in ZooKeeper: name that path with --zookeeper")
        if left:
            raise CopyRefused(
                f"the path in ZooKeeper is not empty (it has {left[0].path}): name an empty or new path, "
                "such as host:2181/oncelog"
            )
        target.commit([Create(OURS, b""), Create(layout.ADOPTING, cluster_id)])
        return
    if marker.value != cluster_id:
        raise CopyRefused(
            "the directory of another broker is being adopted there: complete that adoption, or name another path"
        )
    children_first = sorted(
        (node for node in left if node.path not in (OURS, layout.ADOPTING)), key=_path, reverse=True
    )
    for part in _commits(Delete(node.path, node.version) for node in children_first):
        target.commit(part)


def _path(node: TreeNode) -> str:
    return node.path


def _write(target: Coordination, nodes: Sequence[TreeNode], progress: Callable[[int, int], None]) -> None:
    parents_first = sorted((node for node in nodes if node.path not in (OURS, layout.CLUSTER_ID)), key=_path)
    done = 0
    for part in _commits(_writing(target, node) for node in parents_first):
        target.commit(part)
        done += len(part)
        progress(done, len(nodes))


def _writing(target: Coordination, node: TreeNode) -> Operation:
    path = _encoded(node.path)
    existing = target.read(path) if _is_of_consumers(path) else None
    return Create(path, node.value) if existing is None else Set(path, node.value, existing.version)


def _encoded(path: str) -> str:
    """The path with names that ZooKeeper accepts: SQLite also accepted ``.`` and ``..``."""
    parent, _, name = path.rpartition("/")
    return f"{parent}/{layout.entity_name(layout.entity_of(name))}" if parent in _ENTITY_PARENTS else path


def _commits(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    """The operations, grouped into commits that every tree accepts."""
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
