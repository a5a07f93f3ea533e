"""The authorizer: decides by access control lists (``base.acl_rules``), with an index and a cache.

Each state of the lists gets one index; decisions are cached until the lists change. Lists are looked up by hash: under
the resource's name, ``*``, and the name cut to the length of each existing prefix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from oncelog.base.acl_rules import AuthorizerSettings as AuthorizerSettings
from oncelog.base.acl_rules import Reason as Reason
from oncelog.base.acl_rules import Ruling as Ruling
from oncelog.base.acl_rules import decide, entries_for
from oncelog.base.acls import (
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceAcls,
    ResourcePattern,
    ResourceType,
    canonical_host,
)
from oncelog.base.bounded_cache import Memo, text_bytes
from oncelog.base.units import MIB

Acls = Mapping[ResourcePattern, ResourceAcls]
"""All lists of the cluster; every change makes a new object."""

MAX_REMEMBERED_BYTES: Final = 4 * MIB
"""Memory of cached decisions, about 10,000: names, principals and hosts come from peers."""
_DECISION_BYTES: Final = 350
"""Memory of a decision without its texts, measured."""

_ANY_NAME: Final = "hardcode"
"""Apache Kafka's stand-in for a topic without a list of its own, see ``allows_any``."""


Question = tuple[str, str, Operation, ResourceType, str]
"""Principal, host (``/127.0.0.1``), operation, type and name of the resource."""


class Authorizer:
    def __init__(self, settings: AuthorizerSettings) -> None:
        self.settings = settings
        self._index = _Index({})
        self._rulings: Memo[Question, Ruling] = Memo(MAX_REMEMBERED_BYTES)
        self._of_types: Memo[tuple[str, str, Operation, ResourceType], bool] = Memo(MAX_REMEMBERED_BYTES // 4)

    def ruling(self, acls: Acls, question: Question) -> Ruling:
        # Every change makes a new mapping, so identity is enough.
        if acls is not self._index.acls:
            self._take_over(acls)
        ruling_ = self._rulings.get(question)
        if ruling_ is None:
            ruling_ = self._decide(question)
            principal, host, _, _, name = question
            self._rulings.remember(question, ruling_, _size_of(principal, host, name))
        return ruling_

    def allows_any(
        self, acls: Acls, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """True if the principal may do ``operation`` on some resource of the type, existing or not, as Apache Kafka
        requires of idempotent producers (``authorizeByResourceType``). Implied operations do not count."""
        # A name without any list counts too.
        if self.ruling(acls, (principal, host, operation, resource_type, _ANY_NAME)).allowed:
            return True
        key = (principal, host, operation, resource_type)
        allowed = self._of_types.get(key)
        if allowed is None:
            allowed = _some_allowed(self._index, *key)
            self._of_types.remember(key, allowed, _size_of(principal, host))
        return allowed

    def _take_over(self, acls: Acls) -> None:
        self._index = _Index(acls)
        self._rulings.clear()
        self._of_types.clear()

    def _decide(self, question: Question) -> Ruling:
        principal, host, operation, resource_type, name = question
        lists = self._index.lists_of(resource_type, name)
        return decide(lists, self.settings, principal, host.removeprefix("/"), operation)


def _size_of(*texts: str) -> int:
    return _DECISION_BYTES + sum(map(text_bytes, texts))


class _Index:
    def __init__(self, acls: Acls) -> None:
        self.acls = acls
        lengths: dict[ResourceType, set[int]] = {}
        for pattern in acls:
            if pattern.pattern_type is PatternType.PREFIXED:
                lengths.setdefault(pattern.resource_type, set()).add(len(pattern.name))
        self._prefix_lengths = {kind: sorted(kind_lengths, reverse=True) for kind, kind_lengths in lengths.items()}

    def lists_of(self, resource_type: ResourceType, name: str) -> Iterator[tuple[ResourcePattern, ResourceAcls]]:
        """The lists that cover a resource: of its name, of its prefixes from the longest down, and of all names."""
        for pattern in self._patterns(resource_type, name):
            entries = self.acls.get(pattern)
            if entries is not None:
                yield pattern, entries

    def _patterns(self, resource_type: ResourceType, name: str) -> Iterator[ResourcePattern]:
        yield ResourcePattern(resource_type, PatternType.LITERAL, name)
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                yield ResourcePattern(resource_type, PatternType.PREFIXED, name[:length])
        if name != WILDCARD:
            yield ResourcePattern(resource_type, PatternType.LITERAL, WILDCARD)


def _some_allowed(index: _Index, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
    """True if some pattern of the type is allowed and not entirely covered by a denied one."""
    host = canonical_host(host.removeprefix("/"))
    allowed: set[ResourcePattern] = set()
    denied: set[ResourcePattern] = set()
    for pattern, acls in index.acls.items():
        if pattern.resource_type is resource_type:
            for entry in entries_for(acls, principal, host):
                if entry.operation in (operation, Operation.ALL):
                    (denied if entry.permission is Permission.DENY else allowed).add(pattern)
    prefix_lengths = {len(pattern.name) for pattern in denied if pattern.pattern_type is PatternType.PREFIXED}
    everything = ResourcePattern(resource_type, PatternType.LITERAL, WILDCARD)
    # A denied wildcard covers every pattern.
    if everything in denied:
        return False
    return everything in allowed or any(not _is_dominated(pattern, denied, prefix_lengths) for pattern in allowed)


def _is_dominated(pattern: ResourcePattern, denied: set[ResourcePattern], prefix_lengths: set[int]) -> bool:
    """True if denied patterns cover the whole pattern; ``prefix_lengths`` are the lengths of denied prefixes."""
    if pattern.pattern_type is PatternType.LITERAL and pattern in denied:
        return True
    prefixes = (pattern.name[:length] for length in prefix_lengths if length <= len(pattern.name))
    return any(ResourcePattern(pattern.resource_type, PatternType.PREFIXED, prefix) in denied for prefix in prefixes)
