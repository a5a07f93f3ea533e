"""Heartbeat, versions 0 to 4 (KIP-62, KIP-345): the member is alive, and learns whether it has to join again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId
from oncelog.core.groups import model
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps
from oncelog.handlers.groups.requests import COORDINATOR_ERRORS, ask
from oncelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

ERRORS: Final[Mapping[ErrorCode, str]] = {
    **{code: when for code, when in COORDINATOR_ERRORS.items() if code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS},
    ErrorCode.INVALID_GROUP_ID: "the group id is empty",
    ErrorCode.UNKNOWN_MEMBER_ID: "no such group or member",
    ErrorCode.FENCED_INSTANCE_ID: "another process has the group instance id",
    ErrorCode.ILLEGAL_GENERATION: "not the current generation",
    ErrorCode.REBALANCE_IN_PROGRESS: "the members have to join again",
}


def handle(request: HeartbeatRequest, context: Context) -> Steps[HeartbeatResponse]:
    """Let the coordinator decide. While it loads, members are taken to be alive."""
    if not context.allows_group(Operation.READ, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    beat = model.HeartbeatRequest(
        GroupId(request.group_id), MemberId(request.member_id), request.generation_id, request.group_instance_id
    )
    error = yield from ask(request.group_id, lambda shard, token, now_ms: shard.heartbeat(beat, token, now_ms))
    return HeartbeatResponse(error_code=ErrorCode.NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error)
