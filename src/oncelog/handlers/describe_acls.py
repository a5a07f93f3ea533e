"""DescribeAcls, versions 1 to 3 (KIP-140, KIP-290, KIP-373): there is no authorizer, and so it is said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.handlers.api import Operation
from oncelog.handlers.support.acls import require_known
from oncelog.handlers.support.context import Context
from oncelog.handlers.support.metadata_changes import CLUSTER_DENIED, may_cluster
from oncelog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.SECURITY_DISABLED: "there is no authorizer: always",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to describe the cluster",
}

_MESSAGE: Final = "No Authorizer is configured on the broker"
"""Unlike what changes are told: so are Apache Kafka's."""


def handle(request: DescribeAclsRequest, context: Context) -> DescribeAclsResponse:
    """No lists."""
    require_known(request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    if not may_cluster(context, Operation.DESCRIBE):
        return DescribeAclsResponse(error_code=CLUSTER_DENIED.error_code, error_message=CLUSTER_DENIED.message)
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_MESSAGE)
