"""DeleteAcls, versions 1 to 3 (KIP-140, KIP-290, KIP-373): the entries that filters match are removed.

The filters look at the lists as they are when the request comes; an entry that two of them match is in both answers.
They are told when the removals are committed and this broker decides without the entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.acls import AclBinding
from oncelog.base.errors import ErrorCode
from oncelog.core.controller.entities.acl_changes import MAX_CHANGES, TOO_MANY_REMOVED, delete_acls, matching
from oncelog.core.controller.outcomes import Refusal
from oncelog.handlers.access.acls import change_in_parts, change_refusal, filter_refusal, matcher
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.metadata_changes import outcome_error
from oncelog.handlers.broker.waits import Steps
from oncelog.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.SECURITY_DISABLED: "there is no authorizer",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to alter the cluster",
    ErrorCode.INVALID_REQUEST: "an unknown code in the filter",
    ErrorCode.UNKNOWN_SERVER_ERROR: "more than 10,000 entries at once",
    ErrorCode.REQUEST_TIMED_OUT: "other changes kept coming in between",
}


def handle(request: DeleteAclsRequest, context: Context) -> Steps[DeleteAclsResponse]:
    """Remove what each filter matches."""
    filters = [matcher(wanted) for wanted in request.filters]
    refusal = change_refusal(context)
    if refusal is not None:
        return DeleteAclsResponse(filter_results=[_refused(refusal)] * len(filters))
    unknown = [filter_refusal(wanted) for wanted in request.filters]
    found = [
        matching(context.cluster.image, matches, MAX_CHANGES) if refusal is None else []
        for matches, refusal in zip(filters, unknown, strict=True)
    ]
    wanted = list(dict.fromkeys(binding for bindings in found for binding in bindings))
    if len(wanted) > MAX_CHANGES:
        return DeleteAclsResponse(filter_results=[_refused(TOO_MANY_REMOVED)] * len(filters))
    outcomes = dict(zip(wanted, (yield from change_in_parts(wanted, delete_acls, "Deleted", context)), strict=True))
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_message=None, matching_acls=[_matching(binding, outcomes[binding]) for binding in bindings]
            )
            if refusal is None
            else _refused(refusal)
            for bindings, refusal in zip(found, unknown, strict=True)
        ]
    )


def _refused(refusal: Refusal) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=refusal.error_code, error_message=refusal.message)


def _matching(binding: AclBinding, outcome: bool | Refusal) -> DeleteAclsMatchingAcl:
    pattern, entry = binding
    error_code, message = outcome_error(outcome)
    return DeleteAclsMatchingAcl(
        error_code=error_code,
        error_message=message,
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
