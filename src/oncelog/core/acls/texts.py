"""Entries and reasons as Apache Kafka's authorizer log prints them."""

from __future__ import annotations

from typing import Final

from oncelog.base.acls import AclBinding
from oncelog.core.acls.authorizer import Reason, Ruling

NAME_LENGTH: Final = 512
"""Maximum characters shown of a peer's name."""


def rule_text(ruling: Ruling) -> str:
    if ruling.reason is not Reason.ACL or ruling.acl is None:
        return ruling.reason.value
    return f"MatchingAcl(acl={acl_text(ruling.acl)})"


def acl_text(acl: AclBinding) -> str:
    pattern, entry = acl
    return (
        f"StandardAcl(resourceType={pattern.resource_type.name}, resourceName={shown(pattern.name)}, "
        f"patternType={pattern.pattern_type.name}, principal={shown(entry.principal)}, host={shown(entry.host)}, "
        f"operation={entry.operation.name}, permissionType={entry.permission.name})"
    )


def shown(text: str) -> str:
    """A name for a log line: cut, and escaped unless it is printable ASCII, so that it cannot forge another line."""
    cut = text if len(text) <= NAME_LENGTH else text[:NAME_LENGTH] + "…"
    return cut.encode("unicode_escape").decode() if not (cut.isascii() and cut.isprintable()) else cut
