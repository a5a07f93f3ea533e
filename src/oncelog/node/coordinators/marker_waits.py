"""Requests that wait until decided transactions have their markers.

A group coordinator with pending offsets must not answer with older ones while a decided transaction lacks its marker
(invariant O8 of docs/internals/groups.md). Pending offsets name a producer but no transactional id, so every leader of
a ``__transaction_state`` partition is queried, this broker included; each answers once its shards are loaded and no
decided transaction of these producers lacks its marker on the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from oncelog.base.ids import NO_BROKER, TRANSACTION_STATE, BrokerId, ProducerId, TopicPartition
from oncelog.node.brokers.messages import UNREACHABLE, AwaitMarkers, BrokerMessages, Cancel, OnAnswer, nothing_to_cancel
from oncelog.node.cluster.metadata import Metadata
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.node.kernel.tasks import Runnable, Task

if TYPE_CHECKING:
    from oncelog.core.transactions.shard import TransactionShard
    from oncelog.handlers.broker.waits import UntilMarked

Queries = dict[int, tuple[AwaitMarkers, OnAnswer]]
"""Queries of other brokers by number, in order of arrival."""


class MarkerWaits:
    """Requests that wait for markers, and queries from other brokers. ``shards()`` yields this broker's loaded shards;
    ``is_loading()`` is true while others are loading."""

    def __init__(
        self,
        messages: BrokerMessages,
        metadata: Metadata,
        deadlines: Deadlines,
        runnable: Runnable,
        shards: Callable[[], Iterable[TransactionShard]],
        is_loading: Callable[[], bool],
    ) -> None:
        self._messages = messages
        self._metadata = metadata
        self._deadlines = deadlines
        self._runnable = runnable
        self._shards = shards
        self._is_loading = is_loading
        self._queries: dict[TopicPartition, Queries] = {}
        self._next_number = 1
        messages.set_receiver(AwaitMarkers, self._receive)

    def park(self, task: Task, wait: UntilMarked) -> None:
        """Query all coordinators; ``task`` wakes with True when the last has answered, with False if one cannot."""
        brokers = self._coordinators()
        if brokers is None:
            self._runnable.wake(task, False)
            return
        missing = set(brokers)
        in_flight: dict[BrokerId, Cancel] = {}

        def cancel_all() -> None:
            for cancel in in_flight.values():
                cancel()

        def give_up(_now_ms: int) -> None:
            cancel_all()
            self._runnable.wake(task, False)

        def answered(broker_id: BrokerId, answer: object) -> None:
            missing.discard(broker_id)
            if answer is UNREACHABLE:
                give_up(self._deadlines.now_ms)
            elif not missing:
                self._runnable.wake(task, True)

        task.alarm = self._deadlines.at(wait.deadline_ms, give_up)
        task.forget = cancel_all
        message = AwaitMarkers(wait.partition, wait.producer_ids)
        for broker_id in brokers:
            in_flight[broker_id] = self._messages.send(broker_id, message, partial(answered, broker_id))
        if not brokers:
            self._runnable.wake(task, True)

    def _coordinators(self) -> list[BrokerId] | None:
        topic = self._metadata.image.topics.get(TRANSACTION_STATE)
        partitions = () if topic is None else topic.partitions
        leaders = list(dict.fromkeys(partition.leader for partition in partitions))
        return None if NO_BROKER in leaders else leaders

    def _receive(self, message: AwaitMarkers, on_answer: OnAnswer) -> Cancel:
        if not self._is_loading() and self._has_markers(message):
            on_answer(None)
            return nothing_to_cancel
        number = self._next_number
        self._next_number += 1
        self._queries.setdefault(message.partition, {})[number] = message, on_answer
        return partial(self._forget, message.partition, number)

    def _forget(self, partition: TopicPartition, number: int) -> None:
        waiting = self._queries.get(partition)
        if waiting is not None and waiting.pop(number, None) is not None and not waiting:
            del self._queries[partition]

    def _has_markers(self, message: AwaitMarkers) -> bool:
        return not any(shard.awaits_marker(message.partition, message.producer_ids) for shard in self._shards())

    def marked(self, partition: TopicPartition, producer_id: ProducerId) -> None:
        if partition in self._queries and not self._is_loading():
            self._answer(partition, producer_id)

    def shards_changed(self) -> bool:
        """Answer queries that waited for shards to load or to move away; True if one was answered."""
        if not self._queries or self._is_loading():
            return False
        return sum(self._answer(partition) for partition in list(self._queries)) > 0

    def _answer(self, partition: TopicPartition, producer_id: ProducerId | None = None) -> int:
        """Answer the queries about a partition (of one producer, if given) that have their markers; returns their
        number.
        """
        count = 0
        for number, (message, on_answer) in list(self._queries[partition].items()):
            if (producer_id is None or producer_id in message.producer_ids) and self._has_markers(message):
                self._forget(partition, number)
                on_answer(None)
                count += 1
        return count
