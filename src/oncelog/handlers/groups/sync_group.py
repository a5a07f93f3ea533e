"""SyncGroup, versions 0 to 5 (KIP-62, KIP-345, KIP-559): the leader brings the assignment, the others ask for theirs.

Parked until the assignment is in the log. From version 5 on protocol type and name must be said and must be those of
the generation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId
from oncelog.core.groups.model import SyncReply, SyncRequest
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps
from oncelog.handlers.groups.requests import COORDINATOR_ERRORS, ask
from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.INVALID_GROUP_ID: "the group id is empty",
    ErrorCode.UNKNOWN_MEMBER_ID: "no such group or member, or the group is empty",
    ErrorCode.FENCED_INSTANCE_ID: "another process has the group instance id",
    ErrorCode.ILLEGAL_GENERATION: "not the current generation",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "not the protocol of the generation, or none said (version 5)",
    ErrorCode.REBALANCE_IN_PROGRESS: "the members have to join again",
}

_PROTOCOL_SINCE: Final = 5


def handle(request: SyncGroupRequest, context: Context) -> Steps[SyncGroupResponse]:
    """Let the coordinator decide; answer when the assignment is durable."""
    if context.version >= _PROTOCOL_SINCE and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not context.allows_group(Operation.READ, request.group_id):
        return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    syncing = SyncRequest(
        group_id=GroupId(request.group_id),
        member_id=MemberId(request.member_id),
        generation=request.generation_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=[(MemberId(part.member_id), bytes(part.assignment)) for part in request.assignments],
    )
    reply = yield from ask(
        request.group_id, lambda shard, token, now_ms: shard.sync(syncing, token, now_ms), ends_with_client=True
    )
    synced = SyncReply(reply) if isinstance(reply, ErrorCode) else reply
    return SyncGroupResponse(
        error_code=synced.error_code,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )
