"""The responses of ShareFetch and ShareAcknowledge: partitions by topic, leader hints, lock time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId, TopicId, TopicPartition
from oncelog.core.share.model import Acknowledgement, AcknowledgeType
from oncelog.core.share.sessions import INITIAL_EPOCH, Begun, PartitionKey
from oncelog.handlers.broker.leaders import add_endpoint, leader_hint
from oncelog.handlers.broker.shares import NOT_LEADER
from oncelog.handlers.broker.waits import NextSlice
from oncelog.handlers.share.acknowledgements import PARTITIONS_PER_SLICE
from oncelog.wire.messages import share_acknowledge, share_fetch

if TYPE_CHECKING:
    from oncelog.handlers.broker.context import Context
    from oncelog.handlers.broker.leaders import LeaderHint
    from oncelog.handlers.broker.shares import Shares
    from oncelog.handlers.broker.waits import Steps
    from oncelog.handlers.share.acknowledgements import Refusals
    from oncelog.handlers.share.reads import Fetched


def error_answer(error_code: ErrorCode) -> share_fetch.ShareFetchResponse:
    return share_fetch.ShareFetchResponse(error_code=error_code)


class ShareFetchAnswer:
    """The answers for the partitions of one ShareFetch, as they become known."""

    def __init__(self, context: Context, shares: Shares, begun: Begun, group_id: GroupId) -> None:
        self._context = context
        self._shares = shares
        self._begun = begun
        self._group_id = group_id
        self._answers: dict[PartitionKey, share_fetch.PartitionData] = {}
        self._fetched: Mapping[PartitionKey, Fetched] = {}

    def fail(self, key: PartitionKey, error_code: ErrorCode) -> None:
        self._answers[key] = share_fetch.PartitionData(partition_index=key[1], error_code=error_code, records=b"")

    def add(
        self, answers: Mapping[PartitionKey, share_fetch.PartitionData], fetched: Mapping[PartitionKey, Fetched]
    ) -> None:
        self._answers.update(answers)
        self._fetched = fetched

    def withdraw_ended(self, member_id: MemberId) -> None:
        """Take out the records that the member has lost while the response waited: others may have got them since."""
        for key, answer in self._answers.items():
            if not answer.acquired_records:
                continue
            led = self._fetched[key].led
            if led.refusal is not None or led.machine is None:
                self.fail(key, NOT_LEADER.error_code)
                continue
            answer.acquired_records = [
                share_fetch.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                for first, last, count in led.machine.still_held(member_id, _rows(answer))
            ]
            if not answer.acquired_records:
                answer.records = b""

    def give_back(self, member_id: MemberId) -> Steps[None]:
        """Release the records that the response was to bring: its request is not current any more."""
        acquired = [
            (self._fetched[key].led, answer) for key, answer in self._answers.items() if answer.acquired_records
        ]
        for count, (led, answer) in enumerate(acquired, 1):
            if led.refusal is None and led.machine is not None:
                # A later delivery to the same member has another count.
                held = led.machine.still_held(member_id, _rows(answer))
                releases = [Acknowledgement(first, last, [AcknowledgeType.RELEASE]) for first, last, _ in held]
                if releases:
                    self._shares.acknowledge(led.key, member_id, releases)
            if not count % PARTITIONS_PER_SLICE:
                yield NextSlice()

    def finish(self, acknowledged: Refusals) -> share_fetch.ShareFetchResponse:
        """The response: what the session has not told yet, and the outcome of all acknowledgements."""
        response = share_fetch.ShareFetchResponse(
            acquisition_lock_timeout_ms=self._shares.settings_of(self._group_id).record_lock_duration_ms
        )
        begun, session = self._begun, self._begun.session
        if begun.partitions and not self._shares.sessions.is_current(begun):
            response.error_code, response.acquisition_lock_timeout_ms = ErrorCode.INVALID_SHARE_SESSION_EPOCH, 0
            self._answers = {}
        if session is not None and begun.epoch != INITIAL_EPOCH:
            self._answers = {
                key: answer
                for key, answer in self._answers.items()
                if session.must_answer(key, has_records=bool(answer.records), has_error=bool(answer.error_code))
            }
        for key, answer in self._answers.items():
            hint = _hint(key, answer.error_code, self._context)
            if hint is not None:
                answer.current_leader = share_fetch.LeaderIdAndEpoch(
                    leader_id=hint.leader_id, leader_epoch=hint.leader_epoch
                )
                add_endpoint(response.node_endpoints, share_fetch.NodeEndpoint, hint.leader_id, self._context)
        self._add_outcomes(acknowledged)
        response.responses = self._by_topic()
        self._count(response)
        return response

    def _add_outcomes(self, acknowledged: Refusals) -> None:
        for key, refusal in acknowledged.items():
            answer = self._answers.get(key)
            if answer is None:
                answer = self._answers[key] = share_fetch.PartitionData(partition_index=key[1], records=b"")
            if refusal is not None:
                answer.acknowledge_error_code = refusal.error_code
                answer.acknowledge_error_message = refusal.message or None

    def _by_topic(self) -> list[share_fetch.ShareFetchableTopicResponse]:
        topics: dict[TopicId, share_fetch.ShareFetchableTopicResponse] = {}
        for (topic_id, _), answer in self._answers.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = share_fetch.ShareFetchableTopicResponse(topic_id=topic_id)
            topic.partitions.append(answer)
        return list(topics.values())

    def _count(self, response: share_fetch.ShareFetchResponse) -> None:
        """Count the response for the client's quota."""
        quotas = self._context.cluster.quotas
        if quotas.enabled:
            writer = response.writer(self._context.version)
            response.write(writer, self._context.version)
            response.throttle_time_ms = quotas.returned(self._context, writer.size_bytes)


def _rows(answer: share_fetch.PartitionData) -> list[tuple[int, int, int]]:
    return [(row.first_offset, row.last_offset, row.delivery_count) for row in answer.acquired_records]


def acknowledge_answer(
    outcomes: Refusals, lock_ms: int, context: Context
) -> share_acknowledge.ShareAcknowledgeResponse:
    response = share_acknowledge.ShareAcknowledgeResponse(acquisition_lock_timeout_ms=lock_ms)
    topics: dict[TopicId, share_acknowledge.ShareAcknowledgeTopicResponse] = {}
    for key, refusal in outcomes.items():
        topic = topics.get(key[0])
        if topic is None:
            topic = topics[key[0]] = share_acknowledge.ShareAcknowledgeTopicResponse(topic_id=key[0])
            response.responses.append(topic)
        answer = share_acknowledge.PartitionData(partition_index=key[1])
        topic.partitions.append(answer)
        if refusal is None:
            continue
        answer.error_code, answer.error_message = refusal.error_code, refusal.message or None
        hint = _hint(key, refusal.error_code, context)
        if hint is not None:
            answer.current_leader = share_acknowledge.LeaderIdAndEpoch(
                leader_id=hint.leader_id, leader_epoch=hint.leader_epoch
            )
            add_endpoint(response.node_endpoints, share_acknowledge.NodeEndpoint, hint.leader_id, context)
    return response


def _hint(key: PartitionKey, error_code: int, context: Context) -> LeaderHint | None:
    name = context.cluster.image.topic_names.get(key[0])
    return None if name is None else leader_hint(TopicPartition(name, key[1]), error_code, context)
