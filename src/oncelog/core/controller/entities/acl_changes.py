"""Decisions about access control lists: create entries, delete those that a filter matches.

A large change is several commits, and every list is whole after each. A decision names the versions of its lists and
checks that no list's node was deleted since (``acl_nodes.LITERAL_ACLS``): concurrent changes of a list both succeed,
one after the other. Messages are those of Apache Kafka 4.3; limits that it does not have are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from oncelog.base.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from oncelog.base.errors import ErrorCode
from oncelog.base.tree import MAX_COMMIT_BYTES, Check, Create, Delete, Set
from oncelog.base.tree import Operation as TreeOperation
from oncelog.core.controller.image.acl_nodes import LITERAL_ACLS, acl_path, acl_value, entry_bytes, missing_parents
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.outcomes import Decided, Refusal

MAX_CHANGES: Final = 10_000
"""Entries that one request may create or delete, as in Apache Kafka."""
MAX_ACLS: Final = 200_000
"""Entries of the whole cluster."""
MAX_NAME: Final = 4_096
"""Characters of a resource name and of a principal."""
MAX_HOST: Final = 255
MAX_LIST_BYTES: Final = MAX_COMMIT_BYTES - 50_000
"""A pattern's list is one node and changed in one commit, with room for a last entry."""
_ENTRIES_A_COMMIT: Final = 1_000
_LIST_BYTES: Final = 300
"""Bytes of a list besides its path and entries: the operation, surrounding JSON, and the check."""

TOO_MANY: Final = Refusal(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
TOO_MANY_REMOVED: Final = Refusal(
    ErrorCode.UNKNOWN_SERVER_ERROR, f"Cannot remove more than {MAX_CHANGES} acls in a single delete operation."
)
FULL: Final = Refusal(ErrorCode.POLICY_VIOLATION, f"The cluster has the maximum of {MAX_ACLS} ACLs; delete some first.")
_LIST_FULL: Final = Refusal(
    ErrorCode.POLICY_VIOLATION,
    "The ACLs of this resource pattern are too many for one node of the tree; use a prefixed pattern or User:*.",
)


def _name(code: ResourceType | Operation) -> str:
    return code.name if code else "UNKNOWN"


def refusal_of(binding: AclBinding) -> Refusal | None:
    pattern, entry = binding
    if pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        return _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not pattern.name:
        return _invalid("Invalid empty resource name")
    if pattern.resource_type in (ResourceType.NONE, ResourceType.ANY):
        return _invalid(f"Invalid resourceType {_name(pattern.resource_type)}")
    if pattern.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return _invalid(f"Invalid patternType {pattern.pattern_type.name}")
    if entry.operation in (Operation.NONE, Operation.ANY):
        return _invalid(f"Invalid operation {_name(entry.operation)}")
    if entry.permission not in (Permission.DENY, Permission.ALLOW):
        return _invalid(f"Invalid permissionType {entry.permission.name}")
    if ":" not in entry.principal:
        return _invalid(
            f"Could not parse principal from `{entry.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )
    if not entry.host:
        return _invalid("Host pattern cannot be null or empty")
    for word, text, limit in (
        ("resource name", pattern.name, MAX_NAME),
        ("principal", entry.principal, MAX_NAME),
        ("host", entry.host, MAX_HOST),
    ):
        if len(text) > limit:
            return _invalid(f"The {word} is longer than {limit} characters")
    return None


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def acl_count(image: ClusterImage) -> int:
    count: int | None = image.derived.get("number of acls")
    if count is None:
        count = image.derived["number of acls"] = sum(len(acl.entries) for acl in image.acls.values())
    return count


def matching(image: ClusterImage, matches: Callable[[AclBinding], bool], limit: int) -> list[AclBinding]:
    """The entries that a filter matches, at most ``limit`` + 1."""
    bindings = (AclBinding(pattern, entry) for pattern, acls in image.acls.items() for entry in acls.entries)
    return list(islice((binding for binding in bindings if matches(binding)), limit + 1))


def create_acls(image: ClusterImage, bindings: Sequence[AclBinding]) -> Decided[bool]:
    """Create a prefix of ``bindings`` that fits one commit. An outcome is True if the entry is new."""
    lists = _Lists(image)
    room = MAX_ACLS - acl_count(image)
    outcomes: list[bool | Refusal] = []
    for binding in bindings[:_ENTRIES_A_COMMIT]:
        if lists.has(binding):
            outcomes.append(False)
        elif room <= 0:
            outcomes.append(FULL)
        elif not lists.may_grow(binding):
            outcomes.append(_LIST_FULL)
        elif lists.takes(binding.pattern):
            lists.add(binding)
            room -= 1
            outcomes.append(True)
        else:
            break
    return Decided(lists.operations(), outcomes)


def delete_acls(image: ClusterImage, bindings: Sequence[AclBinding]) -> Decided[bool]:
    """Delete a prefix of ``bindings`` that fits one commit. An outcome is True if the entry existed."""
    lists = _Lists(image)
    outcomes: list[bool] = []
    for binding in bindings[:_ENTRIES_A_COMMIT]:
        is_there = lists.has(binding)
        if is_there and not lists.takes(binding.pattern):
            break
        if is_there:
            lists.remove(binding)
        outcomes.append(is_there)
    return Decided(lists.operations(), outcomes)


class _Lists:
    """The lists as the commit will leave them."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._after: dict[ResourcePattern, dict[AclEntry, None]] = {}
        self._bytes: dict[ResourcePattern, int] = {}
        self._changed: dict[ResourcePattern, None] = {}
        self._total = 0

    def has(self, binding: AclBinding) -> bool:
        return binding.entry in self._list(binding.pattern)

    def may_grow(self, binding: AclBinding) -> bool:
        # Fills in the list's size.
        self._list(binding.pattern)
        return self._bytes[binding.pattern] + entry_bytes(binding.entry) <= MAX_LIST_BYTES

    def takes(self, pattern: ResourcePattern) -> bool:
        """True if the commit has room for one more entry of this list."""
        self._list(pattern)
        more = 0 if pattern in self._changed else self._bytes[pattern]
        return not self._changed or self._total + more <= MAX_LIST_BYTES

    def add(self, binding: AclBinding) -> None:
        self._change(binding.pattern, entry_bytes(binding.entry))
        self._list(binding.pattern)[binding.entry] = None

    def remove(self, binding: AclBinding) -> None:
        self._change(binding.pattern, -entry_bytes(binding.entry))
        del self._list(binding.pattern)[binding.entry]

    def operations(self) -> list[TreeOperation]:
        if not self._changed:
            return []
        operations = [self._operation(pattern) for pattern in self._changed]
        version = self._image.versions.get(LITERAL_ACLS)
        if version is None:
            return [*missing_parents(self._image.versions), *operations]
        # Deleting a node raises the parent's version: a later list of the same pattern starts at version 0 again.
        gone = any(isinstance(operation, Delete) for operation in operations)
        return [*operations, Set(LITERAL_ACLS, b"", version) if gone else Check(LITERAL_ACLS, version)]

    def _list(self, pattern: ResourcePattern) -> dict[AclEntry, None]:
        entries = self._after.get(pattern)
        if entries is None:
            node = self._image.acls.get(pattern)
            entries = self._after[pattern] = dict.fromkeys(() if node is None else node.entries)
            self._bytes[pattern] = _LIST_BYTES + len(acl_path(pattern)) + sum(map(entry_bytes, entries))
        return entries

    def _change(self, pattern: ResourcePattern, growth: int) -> None:
        if pattern not in self._changed:
            self._changed[pattern] = None
            self._total += self._bytes[pattern]
        self._total += growth
        self._bytes[pattern] += growth

    def _operation(self, pattern: ResourcePattern) -> TreeOperation:
        path, entries = acl_path(pattern), self._after[pattern]
        node = self._image.acls.get(pattern)
        if node is None:
            return Create(path, acl_value(entries))
        return Set(path, acl_value(entries), node.version) if entries else Delete(path, node.version)
