"""The rules of access control lists, those of Apache Kafka's StandardAuthorizer; the one place that has them.

1. A super user may do everything.
2. The lists of a resource are those of its own name, of every prefix of its name, and of ``*``. An entry counts if its
   principal is the asking one or ``User:*``, its host the asking one or ``*``, its operation the one asked for or ALL.
3. One entry that denies is enough to deny, whatever else allows.
4. An entry that allows READ, WRITE, DELETE or ALTER allows DESCRIBE too, one that allows ALTER_CONFIGS allows
   DESCRIBE_CONFIGS. An entry that denies denies its own operation only.
5. What nothing allows is denied; except that a resource without any list may be used by everybody where
   ``allow.everyone.if.no.acl.found`` says so.
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
    """Why a question was answered as it was, in Apache Kafka's words."""

    SUPER_USER = "SuperUser"
    ACL = "MatchingAcl"
    DEFAULT_ALLOW = "DefaultAllow"
    DEFAULT_DENY = "DefaultDeny"


class Ruling(NamedTuple):
    """An answer with its reason; ``acl`` is the entry that decided, where one did."""

    allowed: bool
    reason: Reason
    acl: AclBinding | None = None


class AuthorizerSettings(NamedTuple):
    """The settings that hold beside the lists: ``super.users`` and ``allow.everyone.if.no.acl.found``."""

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
    """The answer by the lists for one resource: may ``principal``, connected from ``host``, do ``operation`` on it?"""
    if principal in settings.super_users:
        return _SUPER_USER
    host = canonical_host(host)
    allowing: AclBinding | None = None
    has_list = False
    for pattern, found in lists:
        has_list = True
        for entry in entries_for(found, principal, host):
            if entry.permission is Permission.DENY:
                if entry.operation in (operation, Operation.ALL):
                    return Ruling(allowed=False, reason=Reason.ACL, acl=AclBinding(pattern, entry))
            elif allowing is None and _allows(entry, operation):
                allowing = AclBinding(pattern, entry)
    if allowing is not None:
        return Ruling(allowed=True, reason=Reason.ACL, acl=allowing)
    return _DEFAULT_ALLOW if settings.allow_everyone and not has_list else _DEFAULT_DENY


def entries_for(acls: ResourceAcls, principal: str, host: str) -> Iterator[AclEntry]:
    """The entries of a list for a principal at a host."""
    for each in (principal,) if principal == ANY_PRINCIPAL else (principal, ANY_PRINCIPAL):
        for entry in acls.by_principal.get(each, ()):
            if entry.host in (WILDCARD, host):
                yield entry


def _allows(entry: AclEntry, operation: Operation) -> bool:
    """True if an entry that allows something allows ``operation``."""
    if entry.operation in (operation, Operation.ALL):
        return True
    return entry.operation in _IMPLIED_BY.get(operation, _NOTHING)
