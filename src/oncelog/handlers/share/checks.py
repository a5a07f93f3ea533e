"""Checks of ShareFetch and ShareAcknowledge before anything is done, in Apache Kafka's order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId
from oncelog.core.share.sessions import SessionKey
from oncelog.handlers.api import Operation
from oncelog.handlers.groups.requests import serves_share_groups

if TYPE_CHECKING:
    from oncelog.handlers.broker.context import Context

_LONGEST_MEMBER_ID: Final = 36


class Checked(NamedTuple):
    error_code: ErrorCode
    key: SessionKey


def check(group_id: str | None, member_id: str | None, context: Context) -> Checked:
    """The session of a request, or the error that refuses it."""
    key = SessionKey(GroupId(group_id or ""), MemberId(member_id or ""))
    if not serves_share_groups(context):
        return Checked(ErrorCode.UNSUPPORTED_VERSION, key)
    if group_id is None:
        return Checked(ErrorCode.INVALID_REQUEST, key)
    if not context.allows_group(Operation.READ, group_id):
        return Checked(ErrorCode.GROUP_AUTHORIZATION_FAILED, key)
    # Counted as Java counts: in UTF-16.
    if not member_id or len(member_id.encode("utf-16-le")) > 2 * _LONGEST_MEMBER_ID:
        return Checked(ErrorCode.INVALID_REQUEST, key)
    return Checked(ErrorCode.NONE, key)
