"""ShareFetch, versions 1 to 2 (KIP-932, KIP-1206, KIP-1222): acquires records for a member, and acknowledges others.

The acknowledgements of a request are decided first; the response waits for records as a Fetch does, and then until the
acknowledgements are durable. Records are returned as the log has them, in whole batches: the acquired offsets say which
of them are the member's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import Offset, TopicId, TopicPartition
from oncelog.core.share.model import Refusal
from oncelog.core.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, Begun, PartitionKey, SessionKey
from oncelog.core.share_state.model import ShareKey
from oncelog.handlers.broker.ports import LeaderLog
from oncelog.handlers.broker.time_slices import run_in_slices
from oncelog.handlers.broker.waits import NextSlice, Steps, UntilReadable, UseShares
from oncelog.handlers.logs.searches import searched
from oncelog.handlers.share.acknowledgements import PARTITIONS_PER_SLICE, Acknowledger, TopicRights, until_durable
from oncelog.handlers.share.checks import check
from oncelog.handlers.share.reads import Fetched, ShareFetchParams, ShareReads
from oncelog.handlers.share.response import ShareFetchAnswer, error_answer
from oncelog.records.errors import RecordTooLarge
from oncelog.storage.log.read import search_timestamp
from oncelog.wire.messages import share_fetch as wire

if TYPE_CHECKING:
    from oncelog.handlers.broker.context import Context
    from oncelog.handlers.broker.shares import PendingAcknowledgement, Shares

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNSUPPORTED_VERSION: "share groups are off: the feature share.version is 0",
    ErrorCode.INVALID_REQUEST: "the member id is empty or longer than 36 characters; the first request of a session "
    "acknowledges records; a request that renews also fetches; a malformed acknowledgement",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not allowed to read the group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to read the topic",
    ErrorCode.SHARE_SESSION_NOT_FOUND: "the member has no session here: open one with epoch 0",
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: "not the next request of the session",
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: "this broker has group.share.max.share.sessions sessions, or the "
    "partitions of one or of all are too many",
    ErrorCode.UNKNOWN_TOPIC_ID: "no topic has this id",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such partition, or none of its records is acquired from this broker",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "this broker does not lead the partition, or another one leads it since",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the share coordinator cannot be reached now",
    ErrorCode.GROUP_ID_NOT_FOUND: "the share coordinator does not know the group's state",
    ErrorCode.INVALID_RECORD_STATE: "the member has not acquired the records, or its lock has expired",
    ErrorCode.KAFKA_STORAGE_ERROR: "the log could not be read",
    ErrorCode.UNKNOWN_SERVER_ERROR: "an acquire mode that does not exist, negative sizes, or a damaged state",
}

_RENEWS_SINCE: Final = 2
_BATCH_OPTIMIZED: Final = 0
_RECORD_LIMIT: Final = 1

Readable = list[tuple[PartitionKey, TopicPartition]]


def handle(request: wire.ShareFetchRequest, context: Context) -> Steps[wire.ShareFetchResponse]:
    checked = check(request.group_id, request.member_id, context)
    if checked.error_code != ErrorCode.NONE:
        return error_answer(checked.error_code)
    renews = context.version >= _RENEWS_SINCE and request.is_renew_ack
    if renews and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
        return error_answer(ErrorCode.INVALID_REQUEST)
    shares: Shares = yield UseShares()
    acknowledges = any(partition.acknowledgement_batches for topic in request.topics for partition in topic.partitions)
    begun = shares.sessions.fetch(
        checked.key,
        request.share_session_epoch,
        _partitions_of(request),
        _forgotten_of(request),
        context.connection_id,
        acknowledges=acknowledges,
    )
    if begun.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED and request.max_wait_ms > 0:
        # The member tries again at once: it is slowed down as if it waited for records.
        yield UntilReadable((), lambda changed: False, context.now_ms + request.max_wait_ms)
    if begun.error_code != ErrorCode.NONE:
        return error_answer(begun.error_code)
    if request.share_session_epoch == INITIAL_EPOCH:
        while shares.goes_on_releasing(checked.key):
            yield NextSlice()
            if not shares.sessions.is_current(begun):
                return error_answer(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    rights = TopicRights(context)
    pending: dict[PartitionKey, PendingAcknowledgement] = {}
    if acknowledges:
        acknowledger = Acknowledger(context, shares, rights, *checked.key, renews)
        pending = yield from acknowledger.acknowledge(request.topics)
    answer = ShareFetchAnswer(context, shares, begun, checked.key.group_id)
    if begun.partitions and not renews:
        error_code = yield from _fetch(request, context, shares, rights, begun, checked.key, answer)
        if error_code != ErrorCode.NONE:
            yield from answer.give_back(checked.key.member_id)
            return error_answer(error_code)
    has_to_wait = not all(acknowledgement.is_settled for acknowledgement in pending.values())
    acknowledged = yield from until_durable(pending)
    if has_to_wait:
        answer.withdraw_ended(checked.key.member_id)
        if not shares.sessions.is_current(begun):
            yield from answer.give_back(checked.key.member_id)
    if request.share_session_epoch == FINAL_EPOCH and begun.session is not None:
        shares.end_session(begun.session)
    return answer.finish(acknowledged)


def _partitions_of(request: wire.ShareFetchRequest) -> Iterator[PartitionKey]:
    return (
        (TopicId(topic.topic_id), partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )


def _forgotten_of(request: wire.ShareFetchRequest) -> Iterator[PartitionKey]:
    return ((TopicId(topic.topic_id), index) for topic in request.forgotten_topics_data for index in topic.partitions)


def _fetch(
    request: wire.ShareFetchRequest,
    context: Context,
    shares: Shares,
    rights: TopicRights,
    begun: Begun,
    key: SessionKey,
    answer: ShareFetchAnswer,
) -> Steps[ErrorCode]:
    """Acquire records of the session's partitions, waiting for some up to ``max_wait_ms``."""
    deadline_ms = context.now_ms + request.max_wait_ms
    readable = yield from _readable(begun, context, rights, answer)
    if not shares.sessions.is_current(begun):
        return ErrorCode.INVALID_SHARE_SESSION_EPOCH
    if readable and request.share_acquire_mode not in (_BATCH_OPTIMIZED, _RECORD_LIMIT):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    params = _params_of(request, context, shares, key)
    if not readable or 0 in (params.max_records, params.max_bytes):
        return ErrorCode.NONE
    if params.max_bytes < 0:
        for failed, _ in readable:
            answer.fail(failed, ErrorCode.UNKNOWN_SERVER_ERROR)
        return ErrorCode.NONE
    reads = ShareReads(context, shares, params)
    yield from _add_all(readable, reads, begun, key, shares)
    if not shares.sessions.is_current(begun):
        return ErrorCode.INVALID_SHARE_SESSION_EPOCH
    waits = request.max_wait_ms > 0
    while not reads.try_to_acquire():
        changes = shares.changes
        if (yield from _search_all(reads, context, shares)):
            reads.catch_up(shares.changed_since(changes))
            # The member may have gone meanwhile: nobody would acknowledge what it acquires.
            if not shares.sessions.is_current(begun):
                return ErrorCode.INVALID_SHARE_SESSION_EPOCH
            continue
        if not waits:
            break
        waits = False  # only once: the wait also ends when the client stops sending
        yield UntilReadable(
            reads.wait_keys,
            lambda changed: not shares.sessions.is_current(begun) or reads.ready(changed),
            deadline_ms,
        )
        # A request that came later, on another connection, has taken over the session.
        if not reads.is_done and not shares.sessions.is_current(begun):
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
    reads.acquire_what_there_is()
    is_sliced = False
    while reads.acquires_more():
        is_sliced = True
        yield NextSlice()
        if not shares.sessions.is_current(begun):
            break
    answer.add(reads.answers, reads.fetched)
    if is_sliced:
        answer.withdraw_ended(key.member_id)
    return ErrorCode.NONE if shares.sessions.is_current(begun) else ErrorCode.INVALID_SHARE_SESSION_EPOCH


def _readable(begun: Begun, context: Context, rights: TopicRights, answer: ShareFetchAnswer) -> Steps[Readable]:
    """The session's partitions that the member may read; the answer has the errors of the others."""
    readable: Readable = []

    def sort_out(keys: Sequence[PartitionKey]) -> None:
        for partition_key in keys:
            partition = _resolve(partition_key, context, rights)
            if isinstance(partition, ErrorCode):
                answer.fail(partition_key, partition)
            else:
                readable.append((partition_key, partition))

    yield from run_in_slices(_rotated(begun), sort_out, context.partitions)
    return readable


def _add_all(readable: Readable, reads: ShareReads, begun: Begun, key: SessionKey, shares: Shares) -> Steps[None]:
    changes = shares.changes
    for count, (partition_key, partition) in enumerate(readable, 1):
        share_key = ShareKey(key.group_id, *partition_key)
        if partition_key in begun.added:
            shares.partition_added(share_key)
        reads.add(partition_key, share_key, partition)
        if not count % PARTITIONS_PER_SLICE:
            yield NextSlice()
            # Share partitions made after the end of their group's last session would stay.
            if not shares.sessions.is_current(begun):
                return
            # Most partitions were loaded in this slice: that is a change of each.
            reads.catch_up(shares.changed_since(changes))
            changes = shares.changes
    reads.catch_up(shares.changed_since(changes))


def _rotated(begun: Begun) -> list[PartitionKey]:
    """The session's partitions, beginning with another one in each request: none starves behind the others."""
    start = begun.epoch % len(begun.partitions) if begun.epoch > 0 else 0
    return [*begun.partitions[start:], *begun.partitions[:start]]


def _resolve(key: PartitionKey, context: Context, rights: TopicRights) -> TopicPartition | ErrorCode:
    name = context.cluster.image.topic_names.get(key[0])
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not rights.allow(name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    partition = TopicPartition(name, key[1])
    return partition if context.cluster.image.has_partition(partition) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _params_of(request: wire.ShareFetchRequest, context: Context, shares: Shares, key: SessionKey) -> ShareFetchParams:
    max_bytes: int = min(request.max_bytes, context.cluster.config.get("fetch.max.bytes"))
    quotas = context.cluster.quotas
    quota_limit = quotas.max_fetch_bytes(context) if quotas.enabled else None
    if quota_limit is not None:
        max_bytes = min(max_bytes, quota_limit)
    return ShareFetchParams(
        member_id=key.member_id,
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        max_records=request.max_records,
        batch_size=max(1, request.batch_size),
        record_limit=request.share_acquire_mode == _RECORD_LIMIT,
        read_committed=shares.settings_of(key.group_id).read_committed,
    )


def _search_all(reads: ShareReads, context: Context, shares: Shares) -> Steps[bool]:
    """True if there was something to search."""
    searches = reads.searches()
    for fetched in searches:
        yield from _search(fetched, context, shares)
    return bool(searches)


def _search(fetched: Fetched, context: Context, shares: Shares) -> Steps[None]:
    """Find where a group begins that resets its offsets by duration, for all requests that wait for it."""
    led, since_ms = fetched.led, fetched.led.search_from_ms
    led.search_from_ms = None
    leader = context.partitions.leader_log(fetched.partition, led.leader_epoch)
    if since_ms is None or not isinstance(leader, LeaderLog):
        return
    try:
        found = yield from searched(search_timestamp(leader.log, since_ms), ends_with_client=False)
    except OSError:
        shares.begin_at(led, Refusal(ErrorCode.KAFKA_STORAGE_ERROR, ""))
        return
    except RecordTooLarge:
        shares.begin_at(led, Refusal(ErrorCode.INVALID_RECORD, ""))
        return
    end = leader.log.high_watermark
    # All records are older: the group begins with the next one.
    offset = end if found is None else min(end, found.offset)
    shares.begin_at(led, Offset(offset))
