"""CreateAcls, versions 1 to 3 (KIP-140, KIP-290, KIP-373): there is no authorizer that could keep them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.handlers.support.acls import change_refusal, require_known
from oncelog.handlers.support.context import Context
from oncelog.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.SECURITY_DISABLED: "there is no authorizer: always",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to alter the cluster",
}


def handle(request: CreateAclsRequest, context: Context) -> CreateAclsResponse:
    """Each is refused."""
    for creation in request.creations:
        require_known(
            creation.resource_type, creation.resource_pattern_type, creation.operation, creation.permission_type
        )
    refusal = change_refusal(context)
    result = AclCreationResult(error_code=refusal.error_code, error_message=refusal.message)
    return CreateAclsResponse(results=[result] * len(request.creations))
