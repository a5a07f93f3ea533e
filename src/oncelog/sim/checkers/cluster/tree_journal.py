"""R3, R5 and R8: in the tree's journal, epochs rise, and only replicas with all records are elected.

The image after each change is kept, for R9 to compare with brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from oncelog.base.ids import NO_BROKER, BrokerId, TopicPartition
from oncelog.coordination.memory import MemoryTree
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.image.model import PartitionImage, TopicImage
from oncelog.ports import CommittedChange

# (rule, instance).
Report = Callable[[str, str], None]

TWO_LEADERS: Final = "R3 leader epoch of two leaders"
UNCLEAN: Final = "R5 elected without everything"
EPOCH_FELL: Final = "R8 epoch fell in the tree"
WRONG_STATE: Final = "R8 forbidden state in the tree"


class TreeJournal:
    def __init__(self, tree: MemoryTree, report: Report) -> None:
        # The image after each change, by position.
        self.images: dict[int, ClusterImage] = {0: ClusterImage()}
        self.image = self.images[0]
        self.position = 0
        # Called with the images before and after each change.
        self.on_change: list[Callable[[ClusterImage, ClusterImage], None]] = []
        self._report = report
        # The highest registration epoch of each broker.
        self._registered: dict[BrokerId, int] = {}
        tree.session().follow(0, self._changed)

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionImage]]:
        for name, topic in self.image.topics.items():
            for index, partition in enumerate(topic.partitions):
                yield TopicPartition(name, index), partition

    def _changed(self, change: CommittedChange) -> None:
        before = self.image
        self.image = self.images[change.position] = before.apply(change.changes).image
        self.position = change.position
        self._compare(before, self.image)
        for callback in self.on_change:
            callback(before, self.image)

    def _compare(self, before: ClusterImage, after: ClusterImage) -> None:
        if after.controller_epoch < before.controller_epoch:
            self._report(EPOCH_FELL, f"controller epoch {before.controller_epoch}, then {after.controller_epoch}")
        is_new = after.controller_id not in (NO_BROKER, before.controller_id)
        if is_new and 0 < before.controller_epoch >= after.controller_epoch:
            self._report(EPOCH_FELL, f"controller {after.controller_id} in epoch {after.controller_epoch} again")
        for broker_id, broker in after.brokers.items():
            registered = before.brokers.get(broker_id)
            if registered is None or registered.epoch != broker.epoch:
                if broker.epoch <= self._registered.get(broker_id, -1):
                    self._report(EPOCH_FELL, f"broker {broker_id} registers again with epoch {broker.epoch}")
                self._registered[broker_id] = broker.epoch
        if after.topics is not before.topics:
            for name, topic in after.topics.items():
                previous = before.topics.get(name)
                if previous is not topic:
                    self._compare_topic(before, after, previous, topic)

    def _compare_topic(
        self, before: ClusterImage, after: ClusterImage, previous: TopicImage | None, topic: TopicImage
    ) -> None:
        partitions = () if previous is None or previous.topic_id != topic.topic_id else previous.partitions
        for index, partition in enumerate(topic.partitions):
            location = f"{topic.name}-{index}"
            for problem in _problems_of_state(partition):
                self._report(WRONG_STATE, f"{location}: {problem}: {_describe(partition)}")
            if index < len(partitions) and partitions[index] != partition:
                for rule, problem in _problems_of_change(partitions[index], partition, before, after):
                    self._report(
                        rule, f"{location}: {problem}: {_describe(partitions[index])}, then {_describe(partition)}"
                    )


def _problems_of_state(state: PartitionImage) -> Iterator[str]:
    if not set(state.isr) <= set(state.replicas):
        yield "in sync and no replica"
    if state.leader != NO_BROKER and state.leader not in state.isr:
        yield "the leader is not in sync"
    if set(state.isr) & set(state.elr):
        yield "in sync and eligible"


def _problems_of_change(
    old: PartitionImage, new: PartitionImage, before: ClusterImage, after: ClusterImage
) -> Iterator[tuple[str, str]]:
    if new.leader_epoch < old.leader_epoch:
        yield EPOCH_FELL, "leader epoch"
    elif new.leader_epoch == old.leader_epoch:
        if new.leader not in (old.leader, NO_BROKER) or new.leader_broker_epoch not in (old.leader_broker_epoch, -1):
            yield TWO_LEADERS, "another leader in the same epoch"
    elif new.leader != NO_BROKER:
        yield from _problems_of_election(old, new, after)
    added = set(new.isr) - set(old.isr)
    if new.leader_epoch == old.leader_epoch:
        for member in sorted(added):
            broker = before.brokers.get(member)
            is_last_standing = not old.isr and member in old.elr  # the partition continues from it, though it is fenced
            if broker is None or not (broker.may_lead or is_last_standing):
                yield WRONG_STATE, f"{member} joins and is not registered, fenced, about to stop or without room"


def _problems_of_election(old: PartitionImage, new: PartitionImage, after: ClusterImage) -> Iterator[tuple[str, str]]:
    if new.leader not in {*old.isr, *old.elr}:
        yield UNCLEAN, f"{new.leader} was neither in sync nor eligible"
    if set(new.isr) - {*old.isr, *old.elr}:
        yield UNCLEAN, "an election added a replica to the in-sync set"
    broker = after.brokers.get(new.leader)
    if broker is not None and broker.fenced and broker.epoch == new.leader_broker_epoch:
        yield WRONG_STATE, f"{new.leader} is elected and fenced"


def _describe(state: PartitionImage) -> str:
    return f"leader {state.leader} in {state.leader_epoch}, in sync {list(state.isr)}, eligible {list(state.elr)}"
