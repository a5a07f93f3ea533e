"""DescribeAcls, versions 1 to 3 (KIP-140, KIP-290, KIP-373): the entries that a filter matches, by resource pattern."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.acls import AclBinding, ResourcePattern
from oncelog.base.errors import ErrorCode
from oncelog.core.controller.entities.acl_changes import MAX_ACLS, matching
from oncelog.handlers.access.acls import has_authorizer, matcher
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.metadata_changes import CLUSTER_DENIED
from oncelog.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.SECURITY_DISABLED: "there is no authorizer",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to describe the cluster",
}

_MESSAGE: Final = "No Authorizer is configured on the broker"
"""Unlike what changes are told: so are Apache Kafka's."""


def handle(request: DescribeAclsRequest, context: Context) -> DescribeAclsResponse:
    """The lists, each as far as it matches; what decides beside them is told to those who ask for it."""
    matches = matcher(request)
    if not context.allows_cluster(Operation.DESCRIBE):
        return DescribeAclsResponse(error_code=CLUSTER_DENIED.error_code, error_message=CLUSTER_DENIED.message)
    if not has_authorizer(context):
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_MESSAGE)
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
