"""The errors of client operations; each message is one line that says what happened and what to do.

Every expected error derives from :class:`ClientError`; the command line prints it and exits with 1.
"""

from __future__ import annotations

from typing import Final

from oncelog.base.errors import ErrorCode

EXPLANATIONS: Final[dict[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "the broker failed in a way it did not explain; see its log",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is not in the log (deleted, or not written yet)",
    ErrorCode.CORRUPT_MESSAGE: "the records arrived damaged",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the partition has moved to another broker",
    ErrorCode.REQUEST_TIMED_OUT: "the broker could not finish in time",
    ErrorCode.MESSAGE_TOO_LARGE: "larger than the topic's max.message.bytes",
    ErrorCode.RECORD_LIST_TOO_LARGE: "larger than the topic's segment.bytes",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still loading",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "no coordinator is available",
    ErrorCode.NOT_COORDINATOR: "the coordinator has moved to another broker",
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "not a valid topic name (letters, digits, '.', '_' and '-', at most 249 characters)"
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas in sync than min.insync.replicas",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to use this topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not allowed to use this group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to do this on the cluster",
    ErrorCode.INVALID_GROUP_ID: "not a valid group id",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the group uses another protocol than this member",
    ErrorCode.UNSUPPORTED_VERSION: "the broker is too old or too new for this request",
    ErrorCode.TOPIC_ALREADY_EXISTS: "the topic already exists",
    ErrorCode.INVALID_PARTITIONS: "not a possible number of partitions",
    ErrorCode.INVALID_REPLICATION_FACTOR: "not a possible replication factor for this cluster",
    ErrorCode.INVALID_CONFIG: "a configuration key or value is not valid",
    ErrorCode.INVALID_RECORD: "the broker refused a record",
    ErrorCode.INVALID_TIMESTAMP: "a record's timestamp is out of the topic's bounds",
    ErrorCode.NON_EMPTY_GROUP: (
        "the group still has members; stop them first (a static one stays until its session ends)"
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: "no such group",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "a member of the group is subscribed to the topic; stop it first",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members or does not know this one; stop them first",
    ErrorCode.UNKNOWN_TOPIC_ID: "the topic was deleted, perhaps created anew",
    ErrorCode.TOPIC_DELETION_DISABLED: "delete.topic.enable is false on the broker",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the broker does not take this compression",
    ErrorCode.PRODUCER_FENCED: "a newer producer with the same transactional id has taken over",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the producer's epoch is no longer valid",
    ErrorCode.INVALID_TXN_STATE: "the transaction is not in a state that allows it",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the transactional id is not (or no longer) this producer's",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "the time-out is above the broker's transaction.max.timeout.ms",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the transaction before is still being completed",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not allowed to use this transactional id (or two-phase commit)",
    ErrorCode.TRANSACTION_ABORTABLE: "the transaction can only be aborted",
    ErrorCode.ILLEGAL_GENERATION: "the group has rebalanced in the meantime",
    ErrorCode.STALE_MEMBER_EPOCH: "the member's epoch is no longer (or not yet) the coordinator's",
    ErrorCode.FENCED_MEMBER_EPOCH: "the coordinator has expelled the member, or knows it by another epoch",
    ErrorCode.UNRELEASED_INSTANCE_ID: "another member with the same instance id is still in the group; stop it first",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "the coordinator does not have this assignor (group.consumer.assignors)",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "not a valid regular expression (RE2 syntax)",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group is full",
    ErrorCode.FENCED_INSTANCE_ID: "another member with the same instance id has taken over",
    ErrorCode.INVALID_RECORD_STATE: (
        "this member does not have the record (any more): its lock ended, or it was acknowledged already"
    ),
    ErrorCode.SHARE_SESSION_NOT_FOUND: "the leader does not have the member's share session (any more)",
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: "the leader expects another request of the share session",
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: "the leader has no room for another share session",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "user name, password or token is wrong",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "the broker does not have this SASL mechanism",
}


def explain(code: int) -> str:
    """A short explanation of an error code; its name if there is none."""
    try:
        error = ErrorCode(code)
    except ValueError:
        return f"error code {code}"
    return EXPLANATIONS.get(error, error.name)


def code_name(code: int) -> str:
    """The code's name in Apache Kafka, or its number if unknown."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


class ClientError(Exception):
    """An operation failed for a reason outside this program; the message is one line."""

    retriable = False


class ConfigError(ClientError):
    """A client setting is wrong."""


class NoBrokerReachable(ClientError):
    """None of the known addresses answered."""


class ConnectionLost(ClientError):
    """The connection ended before the response; the request may or may not have been carried out."""

    retriable = True


class RebootstrapRequired(ConnectionLost):
    """The address leads to another broker or cluster."""


class RequestTimedOut(ClientError):
    """No response in time; the request may or may not have been carried out."""

    retriable = True


def says_nothing(address: object, timeout_ms: int) -> RequestTimedOut:
    """The error about an address where a connection was accepted and nothing followed."""
    return RequestTimedOut(
        f"{address} accepts connections but does not answer within {timeout_ms} ms; "
        "is it a Kafka broker's plain-text port?"
    )


class UnsupportedRequest(ClientError):
    """Client and broker have no version of a request in common."""


class BrokerRefused(ClientError):
    """The broker answered with an error code. ``subject`` is the object of the request, ``detail`` the broker's own
    message, ``reason`` both in words."""

    def __init__(self, code: int, subject: str, detail: str | None = None) -> None:
        self.code = code
        self.subject = subject
        self.detail = detail
        text = (detail or explain(code)).strip().replace("\n", " ")
        self.reason = f"{subject}: {text}"
        super().__init__(f"{self.reason} ({code_name(code)})")


class UnknownTopic(BrokerRefused):
    def __init__(self, subject: str) -> None:
        super().__init__(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, subject, "does not exist; `oncelog topic list` shows them"
        )


class OutOfTurn(ClientError):
    """The state of the producer or consumer does not allow the operation; nothing was changed or sent."""


class Closed(ClientError):
    """A client or consumer was used after it was closed."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"{subject} is closed; open another")


class TransactionFailed(BrokerRefused):
    """The transaction cannot be committed: abort it. After that the producer is usable again."""


class ProducerUnusable(BrokerRefused):
    """The producer cannot continue; close it and ``initialize`` a new one."""


class ProducerFenced(ProducerUnusable):
    """A newer producer with the same transactional id has taken over."""


class AuthenticationFailed(ClientError):
    """The broker refused our credentials, or we refused its certificate or proof; a retry would not help."""
