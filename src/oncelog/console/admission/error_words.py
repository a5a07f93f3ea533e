"""Words for failed requests: the problem, the way on, and links to the cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.console.query import NotConfirmed

Ways = tuple[tuple[str, str, Mapping[str, str]], ...]
"""Links: text, path and parameters."""


@dataclass(frozen=True, slots=True)
class Words:
    title: str
    advice: str = ""
    ways: Ways = ()


_BY_STATUS: Final[Mapping[int, Words]] = {
    400: Words("A value is not valid", "Correct it and try again."),
    401: Words("A login is required"),
    403: Words("This is not allowed"),
    404: Words("There is nothing at this address"),
    405: Words("This address does not work that way"),
    409: Words("Not confirmed"),
    413: Words("The form is too large", "Send less at once."),
    421: Words("This host name is not the console's"),
    429: Words("Too many wrong logins"),
    500: Words("The console failed", "Its log has the error. Please report it."),
    502: Words("The cluster refused the request"),
    503: Words("The cluster does not answer", "Check that its brokers run, and that this machine reaches them."),
}
_NO_LEADER: Final = Words(
    "The partition has no leader",
    "Nothing can be read or written there until one of its replicas leads; the explanation names what it waits for.",
)
_UNDER_MIN_ISR: Final = Words(
    "Too few replicas are in sync",
    "The partition is under min.insync.replicas. It accepts records again when a broker is back or has caught up.",
)
_NO_COORDINATOR: Final = Words(
    "The coordinator is not available",
    "Its partition of the internal topic has no leader, or it is still loading. Try again in a moment.",
)
_HAS_MEMBERS: Final = Words("The group has members", "Stop its consumers first, then try again.")
_NOT_ALLOWED: Final = Words(
    "The cluster does not allow this",
    "The console's user at the cluster lacks a right: grant it with an ACL, or start the console with another user.",
)
_BAD_CONFIG: Final = Words("The broker refused this configuration", "Nothing was changed. Correct the key or value.")
_BY_PHRASE: Final[Mapping[str, Words]] = {
    "already waiting": Words("The console is busy", "Try again in a moment."),
    "has no leader": _NO_LEADER,
}
_NO_TOPIC: Final = Words("There is no such topic or partition", "It may have been deleted.")
_NO_GROUP: Final = Words("There is no such group", "It may have been deleted, or its offsets expired.")
_NO_OFFSET: Final = Words("The log does not have this offset", "It was deleted, or is not written yet.")
_BY_CODE: Final[Mapping[int, Words]] = {
    ErrorCode.LEADER_NOT_AVAILABLE: _NO_LEADER,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: _NO_LEADER,
    ErrorCode.NOT_ENOUGH_REPLICAS: _UNDER_MIN_ISR,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _UNDER_MIN_ISR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _NO_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _NO_COORDINATOR,
    ErrorCode.NON_EMPTY_GROUP: _HAS_MEMBERS,
    ErrorCode.UNKNOWN_MEMBER_ID: _HAS_MEMBERS,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: _HAS_MEMBERS,
    ErrorCode.INVALID_CONFIG: _BAD_CONFIG,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _NOT_ALLOWED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _NOT_ALLOWED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _NOT_ALLOWED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _NOT_ALLOWED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _NO_TOPIC,
    ErrorCode.GROUP_ID_NOT_FOUND: _NO_GROUP,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: Words(
        "There is no such transactional id", "It has not been used, or the coordinator has forgotten it."
    ),
    ErrorCode.OFFSET_OUT_OF_RANGE: _NO_OFFSET,
    ErrorCode.TOPIC_ALREADY_EXISTS: Words("The topic exists already", "Nothing was changed. Choose another name."),
}


def words_of(status: int, error: Exception | None, path: str, fields: Mapping[str, str]) -> Words:
    """``fields`` are the parameters of the request, which name its subject."""
    words = _BY_STATUS.get(status, _BY_STATUS[500])
    if isinstance(error, BrokerRefused):
        words = _BY_CODE.get(error.code, words)
    elif isinstance(error, ClientError) and not isinstance(error, NotConfirmed):
        phrases = (phrase for phrase in _BY_PHRASE if phrase in str(error))
        words = _BY_PHRASE.get(next(phrases, ""), words)
    return Words(words.title, words.advice, _ways(words, path, fields) if error is not None else ())


def _ways(words: Words, path: str, fields: Mapping[str, str]) -> Ways:
    """Links to where the reason is found."""
    is_group = path.startswith("/groups")
    name = fields.get("name", "")
    topic = fields.get("topic") or (name if path.startswith("/topics") else "")
    partition = fields.get("partition", "")
    place = {"topic": topic, "partition": partition}
    candidates: tuple[tuple[bool, str, str, Mapping[str, str]], ...] = (
        (words in (_NO_LEADER, _UNDER_MIN_ISR) and bool(topic), "why", "/explain", _explain(topic, partition)),
        (words is _NO_COORDINATOR and is_group, "why", "/explain", {"kind": "group", "name": name}),
        (words is _HAS_MEMBERS and is_group, "its members", "/groups/one", {"name": name}),
        (words is _NO_TOPIC and bool(topic), "topics with such a name", "/topics", {"filter": topic, "internal": "1"}),
        (words is _NO_OFFSET and bool(topic), "the first record", "/messages", place | {"from": "first"}),
        (words is _NO_GROUP, "all groups", "/groups", {}),
    )
    return tuple((text, target, parameters) for applies, text, target, parameters in candidates if applies)


def _explain(topic: str, partition: str) -> Mapping[str, str]:
    kind = "partition" if partition.isdecimal() else "topic"
    return {"kind": kind, "name": topic, "partition": partition}
