"""ListPartitionReassignments, version 0 (KIP-455): on one broker no replica is ever on its way to another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.handlers.api import Operation
from oncelog.handlers.support.context import Context
from oncelog.handlers.support.metadata_changes import CLUSTER_DENIED, may_cluster
from oncelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to describe the cluster",
}


def handle(request: ListPartitionReassignmentsRequest, context: Context) -> ListPartitionReassignmentsResponse:
    """None, whatever is asked for."""
    if not may_cluster(context, Operation.DESCRIBE):
        return ListPartitionReassignmentsResponse(
            error_code=CLUSTER_DENIED.error_code, error_message=CLUSTER_DENIED.message
        )
    return ListPartitionReassignmentsResponse(error_message=None)
