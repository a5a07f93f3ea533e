"""Requests that wait for the markers of decided transactions, and the coordinators that are asked for them.

A group coordinator that has pending offsets asks before it answers with what was committed before (invariant O8 of
docs/internals/groups.md). A pending offset knows its producer and no transactional id, so every broker is asked that
leads a partition of ``__transaction_state``; each answers when it has loaded all its shards and no decided transaction
of those producers lacks its marker on the partition. This broker is asked by the same message.
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

Questions = dict[int, tuple[AwaitMarkers, OnAnswer]]
"""Questions of other brokers by number, in order of arrival."""


class MarkerWaits:
    """Requests that wait until decided transactions have their markers. ``shards()`` are the loaded shards of this
    broker, ``is_loading()`` says if there are others."""

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
        self._questions: dict[TopicPartition, Questions] = {}
        self._next_number = 1
        messages.set_receiver(AwaitMarkers, self._receive)

    def park(self, task: Task, wait: UntilMarked) -> None:
        """Ask all coordinators, and let ``task`` go on when the last has answered."""
        brokers = self._coordinators()
        if brokers is None:
            self._runnable.wake(task, False)
            return
        missing = set(brokers)
        unanswered: dict[BrokerId, Cancel] = {}

        def forget() -> None:
            for each in unanswered.values():
                each()

        def give_up(_now_ms: int) -> None:
            forget()
            self._runnable.wake(task, False)

        def answered(broker_id: BrokerId, answer: object) -> None:
            missing.discard(broker_id)
            if answer is UNREACHABLE:
                give_up(self._deadlines.now_ms)
            elif not missing:
                self._runnable.wake(task, True)

        task.alarm = self._deadlines.at(wait.deadline_ms, give_up)
        task.forget = forget
        message = AwaitMarkers(wait.partition, wait.producer_ids)
        for broker_id in brokers:
            unanswered[broker_id] = self._messages.send(broker_id, message, partial(answered, broker_id))
        if not brokers:
            self._runnable.wake(task, True)

    def _coordinators(self) -> list[BrokerId] | None:
        """The brokers that lead partitions of ``__transaction_state``; None while one has no leader to be asked."""
        topic = self._metadata.image.topics.get(TRANSACTION_STATE)
        partitions = () if topic is None else topic.partitions
        leaders = list(dict.fromkeys(partition.leader for partition in partitions))
        return None if NO_BROKER in leaders else leaders

    def _receive(self, message: AwaitMarkers, answered: OnAnswer) -> Cancel:
        if not self._is_loading() and self._has_markers(message):
            answered(None)
            return nothing_to_cancel
        number = self._next_number
        self._next_number += 1
        self._questions.setdefault(message.partition, {})[number] = message, answered
        return partial(self._forget, message.partition, number)

    def _forget(self, partition: TopicPartition, number: int) -> None:
        of_partition = self._questions.get(partition)
        if of_partition is not None and of_partition.pop(number, None) is not None and not of_partition:
            del self._questions[partition]

    def _has_markers(self, message: AwaitMarkers) -> bool:
        return not any(shard.awaits_marker(message.partition, message.producer_ids) for shard in self._shards())

    def marked(self, partition: TopicPartition, producer_id: ProducerId) -> None:
        """Answer who waited for this marker and for no other."""
        if partition in self._questions and not self._is_loading():
            self._answer(partition, producer_id)

    def shards_changed(self) -> bool:
        """Answer questions that waited for shards to be loaded or to move away; True if there was one."""
        if not self._questions or self._is_loading():
            return False
        return sum(self._answer(partition) for partition in list(self._questions)) > 0

    def _answer(self, partition: TopicPartition, producer_id: ProducerId | None = None) -> int:
        """Answer questions about a partition, of all or about one producer; how many."""
        count = 0
        for number, (message, answered) in list(self._questions[partition].items()):
            if (producer_id is None or producer_id in message.producer_ids) and self._has_markers(message):
                self._forget(partition, number)
                answered(None)
                count += 1
        return count
