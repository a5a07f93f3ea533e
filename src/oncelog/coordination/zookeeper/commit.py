"""Plans a commit as a ZooKeeper transaction: the changes it makes, and the versions they depend on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from oncelog.base.tree import ABSENT
from oncelog.coordination.paths import check_path
from oncelog.ports import ANY_VERSION, Change, Check, Create, Delete, Operation, Set


@dataclass(slots=True)
class CommitPlan:
    operations: list[Operation] = field(default_factory=list)
    changes: dict[str, Change] = field(default_factory=dict)
    """Changes by path, in the order in which the paths occur."""
    assumed: set[int] = field(default_factory=set)
    """Indexes of operations whose version was read instead of requested."""
    created: set[str] = field(default_factory=set)
    """Ephemeral nodes that exist afterwards because of this commit."""
    deleted: set[str] = field(default_factory=set)
    """Nodes that do not exist afterwards."""


def plan_commit(operations: Sequence[Operation], version_of: Callable[[str], int]) -> CommitPlan:
    """Plan a commit; ``version_of`` reads a node's version, ABSENT if it does not exist. Raises ValueError for an
    invalid path.
    """
    plan = CommitPlan()
    for operation in operations:
        path = operation.path
        check_path(path)
        if isinstance(operation, Create):
            plan.changes[path] = Change(path, bytes(operation.value), 0)
            # A node deleted and created again in one commit exists afterwards.
            plan.deleted.discard(path)
            if operation.ephemeral:
                plan.created.add(path)
        elif isinstance(operation, Delete):
            plan.changes[path] = Change(path, None, ABSENT)
            plan.deleted.add(path)
            plan.created.discard(path)
        elif not isinstance(operation, Check):
            operation = _with_version(operation, plan, version_of)
            plan.changes[path] = Change(path, bytes(operation.value), operation.expected_version + 1)
        plan.operations.append(operation)
    return plan


# The journal needs the version that each node will have, which ZooKeeper does not reveal in advance. If the node
# changes before the transaction runs, the caller plans again.
def _with_version(operation: Set, plan: CommitPlan, version_of: Callable[[str], int]) -> Set:
    if operation.expected_version != ANY_VERSION:
        return operation
    changed = plan.changes.get(operation.path)
    version = version_of(operation.path) if changed is None else changed.version
    if changed is None:
        plan.assumed.add(len(plan.operations))
    return Set(operation.path, operation.value, version)
