"""Permissions of users on subjects: roles of Confluent's access control, in lines of USER ROLE SUBJECT.

SUBJECT may end with `*` for a prefix; USER `*` is every user. Without a file all users may do everything.
Changes for all subjects, as of the global config, need `ResourceOwner` for `*`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from oncelog.client.errors import ConfigError
from oncelog.registry.errors import RegistryError

DENIED: Final = 40301


class Operation(StrEnum):
    READ = "Read"
    WRITE = "Write"
    MANAGE = "Manage"
    """Delete a subject or its versions, and set its config or mode."""


ROLES: Final[Mapping[str, frozenset[Operation]]] = MappingProxyType(
    {
        "DeveloperRead": frozenset({Operation.READ}),
        "DeveloperWrite": frozenset({Operation.READ, Operation.WRITE}),
        "DeveloperManage": frozenset({Operation.READ, Operation.MANAGE}),
        "ResourceOwner": frozenset(Operation),
    }
)


class Grant(NamedTuple):
    user: str
    operations: frozenset[Operation]
    subject: str
    is_prefix: bool


@dataclass(frozen=True, slots=True)
class Permissions:
    grants: Sequence[Grant] | None = None
    """None: all users may do everything."""

    def allows(self, user: str, operation: Operation, subject: str | None) -> bool:
        """``subject`` None stands for all subjects together."""
        if self.grants is None:
            return True
        needed = frozenset({operation} if subject is not None else Operation)
        return any(
            grant.user in (user, "*") and needed <= grant.operations and _covers(grant, subject)
            for grant in self.grants
        )

    def require(self, user: str, operation: Operation, subject: str | None) -> None:
        """Raises RegistryError."""
        if not self.allows(user, operation, subject):
            resource = "all subjects" if subject is None else f"Subject: {subject}"
            raise RegistryError(DENIED, f"User is denied operation {operation.value} on {resource}")


def _covers(grant: Grant, subject: str | None) -> bool:
    if subject is None:
        return grant.is_prefix and not grant.subject
    return subject.startswith(grant.subject) if grant.is_prefix else subject == grant.subject


def read_permissions(path: Path) -> Permissions:
    """Raises ConfigError."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}") from None
    grants = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 3 or words[1] not in ROLES:
            raise ConfigError(
                f"{path}: line {number}, {line.strip()[:80]!r}, is not USER ROLE SUBJECT; roles are {', '.join(ROLES)}"
            )
        user, role, subject = words
        grants.append(Grant(user, ROLES[role], subject.removesuffix("*"), subject.endswith("*")))
    return Permissions(grants)
