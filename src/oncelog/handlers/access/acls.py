"""Shared by the three APIs about access control lists. Not an API.

Without an authorizer every question about them is answered as Apache Kafka answers it then: SECURITY_DISABLED, for
each item of the request. Clients ask when they begin (MirrorMaker 2, user interfaces) and take that answer for what it
is; an API that is not there is an error to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from typing import Final, Protocol, TypeVar

from oncelog.base.acls import AclBinding, PatternType, Permission, ResourcePattern
from oncelog.base.errors import ErrorCode, PeerError
from oncelog.core.acls.texts import acl_text
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.outcomes import Decided, Refusal
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.metadata_changes import CLUSTER_DENIED, committed
from oncelog.handlers.broker.waits import NextSlice, Steps

DISABLED: Final = Refusal(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
"""The answer to changes."""

Change = Callable[[ClusterImage, Sequence[AclBinding]], Decided[bool]]
"""Decides about the first of some entries, as many as one commit takes."""
E = TypeVar("E", bound=IntEnum)


class _Filter(Protocol):
    """A filter as DescribeAcls and DeleteAcls have it; None and ANY match everything."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def has_authorizer(context: Context) -> bool:
    """True if access control lists decide on this broker."""
    return bool(context.cluster.config.get("authorizer.class.name"))


def change_refusal(context: Context) -> Refusal | None:
    """Why no list is changed; None if the requester may change them."""
    if not context.allows_cluster(Operation.ALTER):
        return CLUSTER_DENIED
    return None if has_authorizer(context) else DISABLED


def change_in_parts(
    bindings: Sequence[AclBinding], change: Change, verb: str, context: Context
) -> Steps[list[bool | Refusal]]:
    """Change entries, as many as one commit takes at a time, and log those that were changed; the outcome of each."""
    outcomes: list[bool | Refusal] = []
    while len(outcomes) < len(bindings):
        if outcomes:
            yield NextSlice()
        rest = bindings[len(outcomes) :]
        found = yield from committed(partial(_decide, change, rest, context))
        for binding, outcome in zip(rest, found, strict=False):
            if outcome is True and context.access_log is not None:
                context.access_log.changed(context, verb, acl_text(binding))
        outcomes += found
    return outcomes


def _decide(change: Change, bindings: Sequence[AclBinding], context: Context) -> Decided[bool]:
    return change(context.cluster.image, bindings)


def known(kind: type[E], code: int) -> E:
    """The word that a code stands for, UNKNOWN for one that is none here. Raises PeerError, which closes the connection
    as Apache Kafka does, for the code by which a client says that it does not know it itself."""
    if code == 0:
        raise PeerError("an access control list of an unknown type, pattern, operation or permission")
    try:
        return kind(code)
    except ValueError:
        return kind(0)


def matcher(wanted: _Filter) -> Callable[[AclBinding], bool]:
    """Says whether an entry is one that the filter wants; what it names by an unknown code matches nothing. Raises
    PeerError as :func:`known`."""
    resources = _resources(wanted)
    principal, host = wanted.principal_filter, wanted.host_filter
    operation, permission = known(Operation, wanted.operation), known(Permission, wanted.permission_type)

    def matches(binding: AclBinding) -> bool:
        entry = binding.entry
        return (
            (principal is None or principal == entry.principal)
            and (host is None or host == entry.host)
            and operation in (Operation.ANY, entry.operation)
            and permission in (Permission.ANY, entry.permission)
            and resources(binding.pattern)
        )

    return matches


def _resources(wanted: _Filter) -> Callable[[ResourcePattern], bool]:
    """Says whether a pattern is one that the filter wants. MATCH with a name wants all that are for this name."""
    name = wanted.resource_name_filter
    resource_type = known(ResourceType, wanted.resource_type_filter)
    pattern_type = known(PatternType, wanted.pattern_type_filter)

    def wants(pattern: ResourcePattern) -> bool:
        if resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if pattern_type is PatternType.MATCH:
            return name is None or pattern.matches(name)
        return pattern_type in (PatternType.ANY, pattern.pattern_type) and name in (None, pattern.name)

    return wants


def filter_refusal(wanted: _Filter) -> Refusal | None:
    """Why nothing is removed by a filter: it has a code that is none here."""
    if 0 in (known(ResourceType, wanted.resource_type_filter), known(PatternType, wanted.pattern_type_filter)):
        return Refusal(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    if 0 in (known(Operation, wanted.operation), known(Permission, wanted.permission_type)):
        return Refusal(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
    return None
