"""Members of the consumer protocol (KIP-848) made by hand, heartbeat by heartbeat."""

from __future__ import annotations

import itertools
from typing import Any

from oncelog.base.units import MINUTE_MS
from oncelog.client.blocking import Client
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.retry import Remedy, remedy
from oncelog.client.programs import Program
from oncelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.waiting import wait_until

LEAVES, LEAVES_FOR_A_WHILE = -1, -2
_numbers = itertools.count()


def ask(client: Client, group: str, message: Any, at_most: int | None = None) -> Any:
    """The coordinator's answer, once it is there."""

    def attempt() -> Program[Any]:
        response = yield from client.cluster.at_coordinator(group, message, at_most=at_most)
        if remedy(response.error_code) is not Remedy.FAIL:
            raise BrokerRefused(response.error_code, group)
        return response

    return client.run(client.cluster.retrying(attempt))


class Member:
    """A member that sends each heartbeat by hand. ``owned`` are the partitions that it says it has, by topic id."""

    def __init__(self, client: Client, group: str, **fields: Any) -> None:
        self.client, self.group, self.fields = client, group, fields
        self.member_id = f"{client.config.client_id}-{next(_numbers)}"
        self.epoch = 0
        self.owned: dict[bytes, list[int]] = {}

    def heartbeat(self, epoch: int | None = None) -> ConsumerGroupHeartbeatResponse:
        message = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            rebalance_timeout_ms=5 * MINUTE_MS,
            topic_partitions=[TopicPartitions(topic_id=key, partitions=parts) for key, parts in self.owned.items()],
            **self.fields,
        )
        answer: ConsumerGroupHeartbeatResponse = ask(self.client, self.group, message)
        if not answer.error_code:
            self.epoch = answer.member_epoch
        return answer

    def follow(self) -> int:
        """Heartbeat, and take and give up whatever the answer says; the number of partitions."""
        answer = self.heartbeat()
        assert not answer.error_code, answer.error_message
        if answer.assignment is not None:
            self.owned = {part.topic_id: part.partitions for part in answer.assignment.topic_partitions}
        return sum(map(len, self.owned.values()))

    def has(self, count: int) -> None:
        wait_until(lambda: self.follow() == count, f"{count} partitions", poll_s=0.05)
