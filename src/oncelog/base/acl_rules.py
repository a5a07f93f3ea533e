"""Decides whether a principal may do an operation on a resource, by the rules of Apache Kafka's StandardAuthorizer.

1. A super user may do everything.
2. A resource is covered by the lists of its own name, of every prefix of its name, and of ``*``. An entry applies if
   its principal is the caller or ``User:*``, its host the caller's or ``*``, and its operation the requested one or
   ALL.
3. One DENY entry outweighs every ALLOW entry.
4. ALLOW of READ, WRITE, DELETE or ALTER implies DESCRIBE; of ALTER_CONFIGS, DESCRIBE_CONFIGS. DENY implies nothing.
5. Without a matching ALLOW the answer is no, except that ``allow.everyone.if.no.acl.found`` opens a resource that no
   list covers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple

from oncelog.base.acls import (
    ANY_PRINCIPAL,
    WILDCARD,
    AclBinding,
    AclEntry,
    Operation,
    Permission,
    ResourceAcls,
    ResourcePattern,
    canonical_host,
)

_IMPLIED_BY: Final[Mapping[Operation, frozenset[Operation]]] = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
_NOTHING: Final[frozenset[Operation]] = frozenset()


class Reason(Enum):
    """The rule that decided, in Apache Kafka's words."""

    SUPER_USER = "SuperUser"
    ACL = "MatchingAcl"
    DEFAULT_ALLOW = "DefaultAllow"
    DEFAULT_DENY = "DefaultDeny"


class Ruling(NamedTuple):
    """A decision with its reason. ``acl`` is the entry that decided, if any."""

    allowed: bool
    reason: Reason
    acl: AclBinding | None = None


class AuthorizerSettings(NamedTuple):
    """The settings ``super.users`` and ``allow.everyone.if.no.acl.found``."""

    super_users: frozenset[str] = frozenset()
    allow_everyone: bool = False


_SUPER_USER: Final = Ruling(allowed=True, reason=Reason.SUPER_USER)
_DEFAULT_ALLOW: Final = Ruling(allowed=True, reason=Reason.DEFAULT_ALLOW)
_DEFAULT_DENY: Final = Ruling(allowed=False, reason=Reason.DEFAULT_DENY)


def decide(
    lists: Iterable[tuple[ResourcePattern, ResourceAcls]],
    settings: AuthorizerSettings,
    principal: str,
    host: str,
    operation: Operation,
) -> Ruling:
    """Decide by a resource's lists whether ``principal``, connected from ``host``, may do ``operation`` on it."""
    # Rule 1.
    if principal in settings.super_users:
        return _SUPER_USER
    # Lists hold canonical addresses, so that equal hosts compare equal.
    host = canonical_host(host)
    allowing: AclBinding | None = None
    has_list = False
    for pattern, entry_list in lists:
        has_list = True
        # No early return for ALLOW: a later entry may deny (rule 3).
        for entry in entries_for(entry_list, principal, host):
            if entry.permission is Permission.DENY:
                if entry.operation in (operation, Operation.ALL):
                    return Ruling(allowed=False, reason=Reason.ACL, acl=AclBinding(pattern, entry))
            elif allowing is None and _allows(entry, operation):
                allowing = AclBinding(pattern, entry)
    if allowing is not None:
        return Ruling(allowed=True, reason=Reason.ACL, acl=allowing)
    # Rule 5.
    return _DEFAULT_ALLOW if settings.allow_everyone and not has_list else _DEFAULT_DENY


def entries_for(acls: ResourceAcls, principal: str, host: str) -> Iterator[AclEntry]:
    for name in (principal,) if principal == ANY_PRINCIPAL else (principal, ANY_PRINCIPAL):
        for entry in acls.by_principal.get(name, ()):
            if entry.host in (WILDCARD, host):
                yield entry


def _allows(entry: AclEntry, operation: Operation) -> bool:
    if entry.operation in (operation, Operation.ALL):
        return True
    return entry.operation in _IMPLIED_BY.get(operation, _NOTHING)
