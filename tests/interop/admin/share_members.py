"""Members of share groups (KIP-932) made by hand: each heartbeat, fetch and acknowledgement is one call."""

from __future__ import annotations

import itertools
from typing import Any, Final, NamedTuple

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client
from oncelog.wire.messages import share_acknowledge, share_fetch
from oncelog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.interop.admin.members import ask
from tests.waiting import wait_until

ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
_LEAVES: Final = -1
_numbers = itertools.count(1)


class Acquired(NamedTuple):
    first: int
    last: int
    delivery_count: int


class ShareMember:
    """A member of a share group that reads partition 0 of its topic with a session to the leader."""

    def __init__(self, client: Client, group: str, topic: str) -> None:
        self.client, self.group, self.topic = client, group, topic
        self.member_id = f"00000000-0000-4000-8000-{next(_numbers):012}"
        self.epoch = 0
        self.session_epoch = 0
        self.topic_id = b""

    def heartbeat(self, epoch: int | None = None) -> ShareGroupHeartbeatResponse:
        message = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            subscribed_topic_names=[self.topic],
        )
        answer: ShareGroupHeartbeatResponse = ask(self.client, self.group, message)
        assert not answer.error_code, (answer.error_code, answer.error_message)
        self.epoch = answer.member_epoch
        return answer

    def join(self) -> None:
        """Heartbeat until the coordinator has assigned partitions."""

        def assigned() -> bool:
            answer = self.heartbeat()
            if answer.assignment is not None and answer.assignment.topic_partitions:
                self.topic_id = answer.assignment.topic_partitions[0].topic_id
            return bool(self.topic_id)

        wait_until(assigned, "the assignment", poll_s=0.1)

    def leave(self) -> None:
        self.heartbeat(_LEAVES)

    def fetch(self, most: int = 500, batch_size: int | None = None, wait_ms: int = 500) -> list[Acquired]:
        """The batches that one ShareFetch acquires; none if nothing is available."""
        message = share_fetch.ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=most,
            batch_size=batch_size or most,
            topics=[
                share_fetch.FetchTopic(
                    topic_id=self.topic_id, partitions=[share_fetch.FetchPartition(partition_index=0)]
                )
            ],
        )
        answer = self._send(message)
        assert not answer.error_code, (answer.error_code, answer.error_message)
        self.session_epoch += 1
        partitions = [partition for topic in answer.responses for partition in topic.partitions]
        for partition in partitions:
            assert not partition.error_code, (partition.error_code, partition.error_message)
        return [
            Acquired(batch.first_offset, batch.last_offset, batch.delivery_count)
            for partition in partitions
            for batch in partition.acquired_records
        ]

    def acquires(self, most: int = 500) -> list[Acquired]:
        """The batches that it acquires once some are available."""
        acquired: list[Acquired] = []
        wait_until(lambda: bool(acquired.extend(self.fetch(most)) or acquired), "records to acquire", poll_s=0.05)
        return acquired

    def acknowledge(self, first: int, last: int, kind: int) -> None:
        batch = share_acknowledge.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
        partition = share_acknowledge.AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
        message = share_acknowledge.ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch,
            topics=[share_acknowledge.AcknowledgeTopic(topic_id=self.topic_id, partitions=[partition])],
        )
        answer = self._send(message)
        assert not answer.error_code, (answer.error_code, answer.error_message)
        self.session_epoch += 1
        for topic in answer.responses:
            for answered in topic.partitions:
                assert not answered.error_code, (answered.error_code, answered.error_message)

    def _send(self, message: Any) -> Any:
        # A session belongs to its connection: the client keeps one to the leader.
        partition = TopicPartition(TopicName(self.topic), 0)
        cluster = self.client.cluster
        leader = self.client.run(cluster.retrying(lambda: cluster.leader(partition)))
        return self.client.run(cluster.request(message, broker=leader))
