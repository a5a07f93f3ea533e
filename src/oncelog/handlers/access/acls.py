"""Access control lists: DescribeAcls, CreateAcls and DeleteAcls, versions 1 to 3 (KIP-140, KIP-290, KIP-373).

Without an authorizer every item of a request is answered SECURITY_DISABLED, as by Apache Kafka: clients ask when they
begin (MirrorMaker 2, user interfaces) and go on after that answer; a missing API is an error to them.

Entries change one by one, in the order of the request. The answer comes when the changes are committed and this broker
decides by them; other brokers follow in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final, Protocol, TypeVar

from oncelog.base.acls import AclBinding, AclEntry, PatternType, Permission, ResourcePattern
from oncelog.base.errors import ErrorCode, PeerError
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

_DISABLED: Final = Refusal(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
"""The answer to changes."""
_DISABLED_MESSAGE: Final = "No Authorizer is configured on the broker"
"""The answer to DescribeAcls: Apache Kafka's words differ, too."""

_Change = Callable[[ClusterImage, Sequence[AclBinding]], Decided[bool]]
"""Decides about the first of some entries, as many as one commit takes."""
_E = TypeVar("_E", bound=IntEnum)


class _Filter(Protocol):
    """A filter as DescribeAcls and DeleteAcls have it; None and ANY match everything."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def _has_authorizer(context: Context) -> bool:
    """True if access control lists decide on this broker."""
    return bool(context.cluster.config.get("authorizer.class.name"))


def _change_refusal(context: Context) -> Refusal | None:
    """Why no list is changed; None if the requester may change them."""
    if not context.allows_cluster(Operation.ALTER):
        return CLUSTER_DENIED
    return None if _has_authorizer(context) else _DISABLED


def _change_in_parts(
    bindings: Sequence[AclBinding], change: _Change, verb: str, context: Context
) -> Steps[list[bool | Refusal]]:
    """Change entries, as many as one commit takes at a time, and log those that were changed; the outcome of each."""
    outcomes: list[bool | Refusal] = []
    while len(outcomes) < len(bindings):
        if outcomes:
            yield NextSlice()
        rest = bindings[len(outcomes) :]
        found = yield from committed(lambda rest=rest: change(context.cluster.image, rest))  # type: ignore[misc]  # bound now
        for binding, outcome in zip(rest, found, strict=False):
            if outcome is True and context.access_log is not None:
                context.access_log.changed(context, verb, acl_text(binding))
        outcomes += found
    return outcomes


def _known(kind: type[_E], code: int) -> _E:
    """The word that a code stands for, UNKNOWN for one that is none here. Raises PeerError, which closes the connection
    as Apache Kafka does, for the code by which a client says that it does not know it itself."""
    if code == 0:
        raise PeerError("an access control list of an unknown type, pattern, operation or permission")
    try:
        return kind(code)
    except ValueError:
        return kind(0)


def _matcher(wanted: _Filter) -> Callable[[AclBinding], bool]:
    """Says whether an entry is one that the filter wants; what it names by an unknown code matches nothing. MATCH with
    a name wants all patterns that are for this name. Raises PeerError as :func:`_known`."""
    resource_type = _known(ResourceType, wanted.resource_type_filter)
    pattern_type = _known(PatternType, wanted.pattern_type_filter)
    operation, permission = _known(Operation, wanted.operation), _known(Permission, wanted.permission_type)
    name, principal, host = wanted.resource_name_filter, wanted.principal_filter, wanted.host_filter

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


def _filter_refusal(wanted: _Filter) -> Refusal | None:
    """Why nothing is removed by a filter: it has a code that is none here."""
    if 0 in (_known(ResourceType, wanted.resource_type_filter), _known(PatternType, wanted.pattern_type_filter)):
        return Refusal(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    if 0 in (_known(Operation, wanted.operation), _known(Permission, wanted.permission_type)):
        return Refusal(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
    return None


DESCRIBE_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.SECURITY_DISABLED: "there is no authorizer",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to describe the cluster",
}


def describe(request: DescribeAclsRequest, context: Context) -> DescribeAclsResponse:
    """The lists, each as far as it matches; what decides beside them is told to those who ask for it."""
    matches = _matcher(request)
    if not context.allows_cluster(Operation.DESCRIBE):
        return with_outcome(DescribeAclsResponse(), CLUSTER_DENIED)
    if not _has_authorizer(context):
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_DISABLED_MESSAGE)
    lists: dict[ResourcePattern, list[AclDescription]] = {}
    for pattern, entry in matching(context.cluster.image, matches, MAX_ACLS):
        lists.setdefault(pattern, []).append(_described(AclBinding(pattern, entry)))
    config = context.cluster.config
    return DescribeAclsResponse(
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
    ErrorCode.REQUEST_TIMED_OUT: "other changes kept coming in between",
}


def create(request: CreateAclsRequest, context: Context) -> Steps[CreateAclsResponse]:
    """Make each entry that can be made."""
    bindings = [_binding(creation) for creation in request.creations]
    refusal = _change_refusal(context)
    if refusal is None and any(map(_is_for_filters, bindings)):
        refusal = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
    if refusal is None and len(bindings) > MAX_CHANGES:
        refusal = TOO_MANY
    if refusal is not None:
        return CreateAclsResponse(results=[_created(refusal)] * len(bindings))
    refused = [refusal_of(binding) for binding in bindings]
    wanted = [binding for binding, refusal in zip(bindings, refused, strict=True) if refusal is None]
    made = iter((yield from _change_in_parts(wanted, create_acls, "Created", context)))
    return CreateAclsResponse(results=[_created(next(made) if each is None else each) for each in refused])


def _binding(creation: AclCreation) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            _known(ResourceType, creation.resource_type),
            _known(PatternType, creation.resource_pattern_type),
            creation.resource_name,
        ),
        AclEntry(
            creation.principal,
            creation.host,
            _known(Operation, creation.operation),
            _known(Permission, creation.permission_type),
        ),
    )


def _is_for_filters(binding: AclBinding) -> bool:
    """True for an entry that only a filter can have: Apache Kafka expects none, and refuses the request as a whole."""
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
    ErrorCode.REQUEST_TIMED_OUT: "other changes kept coming in between",
}


def delete(request: DeleteAclsRequest, context: Context) -> Steps[DeleteAclsResponse]:
    """Remove what each filter matches."""
    filters = [_matcher(filter_) for filter_ in request.filters]
    refusal = _change_refusal(context)
    if refusal is not None:
        return DeleteAclsResponse(filter_results=[_refused(refusal)] * len(filters))
    unknown = [_filter_refusal(filter_) for filter_ in request.filters]
    found = [
        matching(context.cluster.image, matches, MAX_CHANGES) if refusal is None else []
        for matches, refusal in zip(filters, unknown, strict=True)
    ]
    wanted = list(dict.fromkeys(binding for bindings in found for binding in bindings))
    if len(wanted) > MAX_CHANGES:
        return DeleteAclsResponse(filter_results=[_refused(TOO_MANY_REMOVED)] * len(filters))
    outcomes = dict(zip(wanted, (yield from _change_in_parts(wanted, delete_acls, "Deleted", context)), strict=True))
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_message=None, matching_acls=[_deleted(binding, outcomes[binding]) for binding in bindings]
            )
            if refusal is None
            else _refused(refusal)
            for bindings, refusal in zip(found, unknown, strict=True)
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
