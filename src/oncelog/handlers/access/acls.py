"""Access control lists: DescribeAcls, CreateAcls and DeleteAcls, versions 1 to 3 (KIP-140, KIP-290, KIP-373).

Entries are decided one by one, in order, and as many committed together as one commit holds. The response is sent once
all changes are committed and this broker enforces them; others apply them in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final, Protocol, TypeVar

from oncelog.base.acls import AclBinding, AclEntry, PatternType, Permission, ResourcePattern
from oncelog.base.errors import ErrorCode, PeerError
from oncelog.base.ids import group_by_key
from oncelog.core.acls.texts import acl_text
from oncelog.core.controller.entities.acl_changes import (
    MAX_ACLS,
    MAX_CHANGES,
    TOO_MANY,
    TOO_MANY_REMOVED,
    create_acls,
    delete_acls,
    matching,
    refusal_of,
)
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.outcomes import Decided, Refusal
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.metadata_changes import CLUSTER_DENIED, committed, with_outcome
from oncelog.handlers.broker.waits import NextSlice, Steps
from oncelog.wire.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from oncelog.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from oncelog.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

# MirrorMaker 2 and user interfaces list ACLs when they start and go on after SECURITY_DISABLED; a missing API would be
# an error to them.
_DISABLED: Final = Refusal(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
"""The answer to CreateAcls and DeleteAcls."""
_DISABLED_MESSAGE: Final = "No Authorizer is configured on the broker"
"""The answer to DescribeAcls; Apache Kafka words it differently, too."""

_Change = Callable[[ClusterImage, Sequence[AclBinding]], Decided[bool]]
"""Decides on as many of the given entries as one commit takes, from the first on."""
_E = TypeVar("_E", bound=IntEnum)


class _Filter(Protocol):
    """A filter of DescribeAcls or DeleteAcls; None and ANY match everything."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def _has_authorizer(context: Context) -> bool:
    return bool(context.cluster.config.get("authorizer.class.name"))


def _change_refusal(context: Context) -> Refusal | None:
    if not context.allows_cluster(Operation.ALTER):
        return CLUSTER_DENIED
    return None if _has_authorizer(context) else _DISABLED


def _change_in_parts(
    bindings: Sequence[AclBinding], change: _Change, verb: str, context: Context
) -> Steps[list[bool | Refusal]]:
    """Returns the outcome of each entry."""
    outcomes: list[bool | Refusal] = []
    while len(outcomes) < len(bindings):
        if outcomes:
            yield NextSlice()
        rest = bindings[len(outcomes) :]
        decided = yield from committed(lambda rest=rest: change(context.cluster.image, rest))  # type: ignore[misc]  # bound now
        for binding, outcome in zip(rest, decided, strict=False):
            if outcome is True and context.access_log is not None:
                context.access_log.changed(context, verb, acl_text(binding))
        outcomes += decided
    return outcomes


def _enum_of(kind: type[_E], code: int) -> _E:
    """The member of ``kind`` for a code, or UNKNOWN for a code that ``kind`` lacks. Raises PeerError for the code of
    UNKNOWN itself.
    """
    # By code 0 a client says that it does not know the value itself: Apache Kafka closes the connection.
    if code == 0:
        raise PeerError("an access control list of an unknown type, pattern, operation or permission")
    try:
        return kind(code)
    except ValueError:
        return kind(0)


def _matcher(acl_filter: _Filter) -> Callable[[AclBinding], bool]:
    """A predicate for the entries that a filter selects. Unknown codes match nothing; MATCH with a name selects every
    pattern that applies to that name. Raises PeerError like :func:`_enum_of`.
    """
    resource_type = _enum_of(ResourceType, acl_filter.resource_type_filter)
    pattern_type = _enum_of(PatternType, acl_filter.pattern_type_filter)
    operation, permission = _enum_of(Operation, acl_filter.operation), _enum_of(Permission, acl_filter.permission_type)
    name, principal, host = acl_filter.resource_name_filter, acl_filter.principal_filter, acl_filter.host_filter

    def is_for_name(pattern: ResourcePattern) -> bool:
        if pattern_type is PatternType.MATCH:
            return name is None or pattern.matches(name)
        return pattern_type in (PatternType.ANY, pattern.pattern_type) and name in (None, pattern.name)

    def matches(binding: AclBinding) -> bool:
        pattern, entry = binding
        return (
            principal in (None, entry.principal)
            and host in (None, entry.host)
            and operation in (Operation.ANY, entry.operation)
            and permission in (Permission.ANY, entry.permission)
            and resource_type in (ResourceType.ANY, pattern.resource_type)
            and is_for_name(pattern)
        )

    return matches


def _filter_refusal(acl_filter: _Filter) -> Refusal | None:
    if 0 in (
        _enum_of(ResourceType, acl_filter.resource_type_filter),
        _enum_of(PatternType, acl_filter.pattern_type_filter),
    ):
        return Refusal(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    if 0 in (_enum_of(Operation, acl_filter.operation), _enum_of(Permission, acl_filter.permission_type)):
        return Refusal(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
    return None


DESCRIBE_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.SECURITY_DISABLED: "there is no authorizer",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to describe the cluster",
}


def describe(request: DescribeAclsRequest, context: Context) -> DescribeAclsResponse:
    matches = _matcher(request)
    if not context.allows_cluster(Operation.DESCRIBE):
        return with_outcome(DescribeAclsResponse(), CLUSTER_DENIED)
    if not _has_authorizer(context):
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_DISABLED_MESSAGE)
    lists = group_by_key(
        (pattern, _described(AclBinding(pattern, entry)))
        for pattern, entry in matching(context.cluster.image, matches, MAX_ACLS)
    )
    config = context.cluster.config
    return DescribeAclsResponse(
        # Both settings grant access beside the lists: returned to requests that set our tag.
        super_users=config.get("super.users") if request.with_settings else None,
        allow_everyone=request.with_settings and config.get("allow.everyone.if.no.acl.found"),
        resources=[
            DescribeAclsResource(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern_type,
                acls=acls,
            )
            for pattern, acls in lists.items()
        ],
    )


def _described(binding: AclBinding) -> AclDescription:
    entry = binding.entry
    return AclDescription(
        principal=entry.principal, host=entry.host, operation=entry.operation, permission_type=entry.permission
    )


CREATE_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.SECURITY_DISABLED: "there is no authorizer",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to alter the cluster",
    ErrorCode.INVALID_REQUEST: "an unknown code; a name, principal or host that cannot be",
    ErrorCode.UNKNOWN_SERVER_ERROR: "ANY or MATCH anywhere in the request, which only filters may have",
    ErrorCode.POLICY_VIOLATION: "more than 10,000 entries at once, 200,000 in all or what one node of the tree holds",
    ErrorCode.REQUEST_TIMED_OUT: "too many conflicting metadata changes",
}


def create(request: CreateAclsRequest, context: Context) -> Steps[CreateAclsResponse]:
    bindings = [_binding(creation) for creation in request.creations]
    refusal = _change_refusal(context)
    if refusal is None and any(map(_is_for_filters, bindings)):
        # Apache Kafka fails on such an entry and refuses the whole request.
        refusal = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
    if refusal is None and len(bindings) > MAX_CHANGES:
        refusal = TOO_MANY
    if refusal is not None:
        return CreateAclsResponse(results=[_created(refusal)] * len(bindings))
    # Entries are checked one by one: an invalid one does not refuse the others.
    refused = [refusal_of(binding) for binding in bindings]
    valid = [binding for binding, refusal in zip(bindings, refused, strict=True) if refusal is None]
    outcomes = iter((yield from _change_in_parts(valid, create_acls, "Created", context)))
    return CreateAclsResponse(results=[_created(next(outcomes) if refusal is None else refusal) for refusal in refused])


def _binding(creation: AclCreation) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            _enum_of(ResourceType, creation.resource_type),
            _enum_of(PatternType, creation.resource_pattern_type),
            creation.resource_name,
        ),
        AclEntry(
            creation.principal,
            creation.host,
            _enum_of(Operation, creation.operation),
            _enum_of(Permission, creation.permission_type),
        ),
    )


def _is_for_filters(binding: AclBinding) -> bool:
    """True for an entry with a value that only a filter can have."""
    (kind, pattern, _), (_, _, operation, permission) = binding
    return pattern is PatternType.MATCH or 1 in (kind, pattern, operation, permission)


def _created(outcome: bool | Refusal) -> AclCreationResult:
    created = AclCreationResult()
    return with_outcome(created, outcome) if isinstance(outcome, Refusal) else created


DELETE_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.SECURITY_DISABLED: "there is no authorizer",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to alter the cluster",
    ErrorCode.INVALID_REQUEST: "an unknown code in the filter",
    ErrorCode.UNKNOWN_SERVER_ERROR: "more than 10,000 entries at once",
    ErrorCode.REQUEST_TIMED_OUT: "too many conflicting metadata changes",
}


def delete(request: DeleteAclsRequest, context: Context) -> Steps[DeleteAclsResponse]:
    filters = [_matcher(filter_) for filter_ in request.filters]
    refusal = _change_refusal(context)
    if refusal is not None:
        return DeleteAclsResponse(filter_results=[_refused(refusal)] * len(filters))
    unknown = [_filter_refusal(filter_) for filter_ in request.filters]
    matched = [
        matching(context.cluster.image, matches, MAX_CHANGES) if refusal is None else []
        for matches, refusal in zip(filters, unknown, strict=True)
    ]
    selected = list(dict.fromkeys(binding for bindings in matched for binding in bindings))
    # Filters may overlap: each entry counts, and is deleted, once.
    if len(selected) > MAX_CHANGES:
        return DeleteAclsResponse(filter_results=[_refused(TOO_MANY_REMOVED)] * len(filters))
    outcomes = dict(
        zip(selected, (yield from _change_in_parts(selected, delete_acls, "Deleted", context)), strict=True)
    )
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_message=None, matching_acls=[_deleted(binding, outcomes[binding]) for binding in bindings]
            )
            if refusal is None
            else _refused(refusal)
            for bindings, refusal in zip(matched, unknown, strict=True)
        ]
    )


def _refused(refusal: Refusal) -> DeleteAclsFilterResult:
    return with_outcome(DeleteAclsFilterResult(), refusal)


def _deleted(binding: AclBinding, outcome: bool | Refusal) -> DeleteAclsMatchingAcl:
    pattern, entry = binding
    deleted = DeleteAclsMatchingAcl(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
    return with_outcome(deleted, outcome)
