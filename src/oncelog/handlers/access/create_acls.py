"""CreateAcls, versions 1 to 3 (KIP-140, KIP-290, KIP-373): entries are made one by one, in the order of the request.

The answer comes when they are committed and this broker decides by them; other brokers follow in the same order of
changes. An entry that is there counts as made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.acls import AclBinding, AclEntry, PatternType, Permission, ResourcePattern
from oncelog.base.errors import ErrorCode
from oncelog.core.controller.entities.acl_changes import MAX_CHANGES, TOO_MANY, create_acls, refusal_of
from oncelog.core.controller.outcomes import Refusal
from oncelog.handlers.access.acls import change_in_parts, change_refusal, known
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps
from oncelog.wire.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.SECURITY_DISABLED: "there is no authorizer",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to alter the cluster",
    ErrorCode.INVALID_REQUEST: "an unknown code; a name, principal or host that cannot be",
    ErrorCode.UNKNOWN_SERVER_ERROR: "ANY or MATCH anywhere in the request, which only filters may have",
    ErrorCode.POLICY_VIOLATION: "more than 10,000 entries at once, 200,000 in all or what one node of the tree holds",
    ErrorCode.REQUEST_TIMED_OUT: "other changes kept coming in between",
}


def handle(request: CreateAclsRequest, context: Context) -> Steps[CreateAclsResponse]:
    """Make each entry that can be made."""
    bindings = [_binding(creation) for creation in request.creations]
    refusal = change_refusal(context)
    if refusal is None and any(map(_is_for_filters, bindings)):
        refusal = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
    if refusal is None and len(bindings) > MAX_CHANGES:
        refusal = TOO_MANY
    if refusal is not None:
        return CreateAclsResponse(results=[_result(refusal)] * len(bindings))
    refused = [refusal_of(binding) for binding in bindings]
    wanted = [binding for binding, refusal in zip(bindings, refused, strict=True) if refusal is None]
    made = iter((yield from change_in_parts(wanted, create_acls, "Created", context)))
    return CreateAclsResponse(results=[_result(next(made) if each is None else each) for each in refused])


def _binding(creation: AclCreation) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            known(ResourceType, creation.resource_type),
            known(PatternType, creation.resource_pattern_type),
            creation.resource_name,
        ),
        AclEntry(
            creation.principal,
            creation.host,
            known(Operation, creation.operation),
            known(Permission, creation.permission_type),
        ),
    )


def _is_for_filters(binding: AclBinding) -> bool:
    """True for an entry that only a filter can have: Apache Kafka expects none, and refuses the request as a whole."""
    (kind, pattern, _), (_, _, operation, permission) = binding
    return pattern is PatternType.MATCH or 1 in (kind, pattern, operation, permission)


def _result(outcome: bool | Refusal) -> AclCreationResult:
    if isinstance(outcome, Refusal):
        return AclCreationResult(error_code=outcome.error_code, error_message=outcome.message)
    return AclCreationResult()
