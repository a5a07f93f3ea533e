"""DeleteAcls, versions 1 to 3 (KIP-140, KIP-290, KIP-373): there is no authorizer that could have any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.handlers.support.acls import change_refusal, require_known
from oncelog.handlers.support.context import Context
from oncelog.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.SECURITY_DISABLED: "there is no authorizer: always",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to alter the cluster",
}


def handle(request: DeleteAclsRequest, context: Context) -> DeleteAclsResponse:
    """Each filter is refused."""
    for wanted in request.filters:
        require_known(wanted.resource_type_filter, wanted.pattern_type_filter, wanted.operation, wanted.permission_type)
    refusal = change_refusal(context)
    result = DeleteAclsFilterResult(error_code=refusal.error_code, error_message=refusal.message)
    return DeleteAclsResponse(filter_results=[result] * len(request.filters))
