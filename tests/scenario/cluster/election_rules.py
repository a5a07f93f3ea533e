"""The rules of elections, checked with every commit: one leader appends in an epoch, and no epoch ever falls."""

from __future__ import annotations

from oncelog.base.ids import NO_BROKER
from oncelog.base.tree import CommittedChange
from oncelog.coordination.memory import MemoryTree
from oncelog.core.controller.image.cluster_image import ClusterImage, load_image


class ElectionRules:
    """R3 and R8 over all commits of a tree, from the first on."""

    def __init__(self, tree: MemoryTree) -> None:
        self._image: ClusterImage = load_image([])
        self._leaders: dict[tuple[bytes, int, int], tuple[int, int]] = {}
        """Leader and its registration, by topic id, partition and leader epoch."""
        self.commits = 0
        self.largest = 0
        """Bytes of the largest commit."""
        tree.session().follow(0, self._committed)

    def _committed(self, change: CommittedChange) -> None:
        before, self._image = self._image, self._image.apply(change.changes).image
        self.commits += 1
        self.largest = max(self.largest, sum(len(item.path) + len(item.value or b"") for item in change.changes))
        self._check_counters(before, self._image)
        self._check_partitions(before, self._image)

    def _check_counters(self, before: ClusterImage, after: ClusterImage) -> None:
        assert after.controller_epoch >= before.controller_epoch
        assert after.broker_epoch >= before.broker_epoch
        if after.controller_id not in (NO_BROKER, before.controller_id):
            assert after.controller_epoch > before.controller_epoch, "a new controller has a new epoch"
        for broker_id, broker in after.brokers.items():
            was = before.brokers.get(broker_id)
            assert was is None or broker.epoch >= was.epoch

    def _check_partitions(self, before: ClusterImage, after: ClusterImage) -> None:
        for topic in after.topics.values():
            old = before.topics.get(topic.name)
            if old is topic:
                continue
            for index, partition in enumerate(topic.partitions):
                if old is not None and old.topic_id == topic.topic_id and index < len(old.partitions):
                    was = old.partitions[index]
                    assert partition.leader_epoch >= was.leader_epoch, "leader epochs rise"
                    assert partition.leader == was.leader or partition.leader_epoch > was.leader_epoch
                if partition.leader == NO_BROKER:
                    continue
                assert partition.leader in partition.isr, "a leader is in sync"
                who = (partition.leader, partition.leader_broker_epoch)
                known = self._leaders.setdefault((topic.topic_id, index, partition.leader_epoch), who)
                assert known == who, "one leader, in one registration, leads in an epoch"
