"""ShareAcknowledge, versions 1 to 2 (KIP-932, KIP-1222): accepts, releases, rejects or renews acquired records.

Answered when the new states are durable at the share coordinator. The last request of a session (epoch −1) also
releases all that its member has not acknowledged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.core.share.sessions import FINAL_EPOCH
from oncelog.handlers.broker.waits import Steps, UseShares
from oncelog.handlers.share.acknowledgements import Acknowledger, TopicRights, until_durable
from oncelog.handlers.share.checks import check
from oncelog.handlers.share.response import acknowledge_answer
from oncelog.wire.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse

if TYPE_CHECKING:
    from oncelog.handlers.broker.context import Context
    from oncelog.handlers.broker.shares import Shares

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNSUPPORTED_VERSION: "share groups are off: the feature share.version is 0",
    ErrorCode.INVALID_REQUEST: "the member id is empty or longer than 36 characters; a malformed acknowledgement",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not allowed to read the group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to read the topic",
    ErrorCode.SHARE_SESSION_NOT_FOUND: "the member has no session here",
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: "not the next request of the session, or the first",
    ErrorCode.UNKNOWN_TOPIC_ID: "no topic has this id",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such partition, or none of its records is acquired from this broker",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "another broker leads the partition since",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the share coordinator cannot be reached now",
    ErrorCode.GROUP_ID_NOT_FOUND: "the share coordinator does not know the group's state",
    ErrorCode.INVALID_RECORD_STATE: "the member has not acquired the records, or its lock has expired",
    ErrorCode.UNKNOWN_SERVER_ERROR: "the share coordinator failed",
}

_RENEWS_SINCE: Final = 2


def handle(request: ShareAcknowledgeRequest, context: Context) -> Steps[ShareAcknowledgeResponse]:
    checked = check(request.group_id, request.member_id, context)
    if checked.error_code != ErrorCode.NONE:
        return ShareAcknowledgeResponse(error_code=checked.error_code)
    shares: Shares = yield UseShares()
    error_code = shares.sessions.acknowledge(checked.key, request.share_session_epoch, context.connection_id)
    if error_code != ErrorCode.NONE:
        return ShareAcknowledgeResponse(error_code=error_code)
    session = shares.sessions.get(checked.key)
    renews = context.version >= _RENEWS_SINCE and request.is_renew_ack
    acknowledger = Acknowledger(context, shares, TopicRights(context), *checked.key, renews)
    outcomes = yield from until_durable((yield from acknowledger.acknowledge(request.topics)))
    if request.share_session_epoch == FINAL_EPOCH and session is not None:
        shares.end_session(session)
    lock_ms = shares.settings_of(checked.key.group_id).record_lock_duration_ms
    return acknowledge_answer(outcomes, lock_ms, context)
