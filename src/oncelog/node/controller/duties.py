"""The controller's duties: examine what has changed, decide, commit, and examine again.

Every broker runs this, but acts only while the image names it as controller, or to claim that role while no controller
is alive. Decisions are pure functions of the image (``core.controller``). Invariants:

1. Every commit names the controller epoch of its decision: a replaced controller changes nothing (KAFKA-6082).
2. One round of decisions at a time, on an image with the outcomes of the last. After a conflict the round is decided
   again on the image with the conflicting change; after several in a row, or when the tree cannot be written, after a
   pause.
3. A changed topic stays queued until its commits are in the image.
4. A round examines some thousand partitions, the next in an event of its own: a dead broker may have tens of thousands,
   and clients must be served in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.ids import INTERNAL_TOPICS, BrokerId, TopicName
from oncelog.base.tree import CommitOutcome, Operation
from oncelog.base.units import SECOND_MS
from oncelog.core.controller.brokers.tree_format import raise_format
from oncelog.core.controller.commits import COMMIT_BYTES
from oncelog.core.controller.replicas.elections import has_unpreferred_leader, rebalance
from oncelog.core.controller.replicas.failover import (
    claim_controller,
    end_fencing,
    end_registration,
    has_controller,
    settle_partitions,
)
from oncelog.node.controller.report import ControllerReport
from oncelog.node.kernel.events import Report

if TYPE_CHECKING:
    from oncelog.core.controller.image.cluster_image import ClusterImage, ImageDelta
    from oncelog.core.controller.image.model import TopicImage
    from oncelog.node.cluster.metadata import Metadata
    from oncelog.node.cluster.metadata_log import MetadataLog
    from oncelog.node.kernel.deadlines import Deadlines
    from oncelog.node.kernel.events import Outbox

RETRY_MS: Final = 200
"""Pause before the next attempt if the tree could not be written, or rounds kept conflicting."""
CONFLICTS_AT_ONCE: Final = 5
"""Conflicts in a row after which the next attempt waits."""
SMALLEST_COMMIT_BYTES: Final = 8 * 1024
ROUND_COMMIT_BYTES: Final = COMMIT_BYTES // 4
"""Size of a round's commit: some 250 partitions, which their new leaders take over in one event."""
PARTITIONS_A_ROUND: Final = 2_000


class ControllerDuties:
    def __init__(self, metadata: Metadata, commits: MetadataLog, deadlines: Deadlines, outbox: Outbox) -> None:
        self._metadata = metadata
        self._commits = commits
        self._deadlines = deadlines
        self._outbox = outbox
        # Topics that changed and are not decided yet.
        self._topics: dict[TopicName, None] = {}
        # Brokers have changed: fencing may end, internal topics may lack replicas.
        self._brokers_changed = True
        self._under_way = 0
        # A commit of this round was refused.
        self._failed = False
        self._conflicts = 0
        self._limit_bytes = ROUND_COMMIT_BYTES
        self._is_pausing = False
        # The next round is scheduled.
        self._is_scheduled = False
        self._rebalance_scheduled = False
        self._is_stopping = False
        self._report = ControllerReport()

    @property
    def elections(self) -> int:
        """Partitions that got another leader, or none, while this broker was the controller."""
        return self._report.elections

    @property
    def is_controller(self) -> bool:
        image = self._metadata.image
        return image.controller_id == self._metadata.broker_id and has_controller(image)

    def start(self) -> None:
        self._queue_topics(self._metadata.image.topics)
        self._run_round()

    def follow(self, delta: ImageDelta, before: ClusterImage) -> None:
        image = delta.image
        succession = (image.controller_id, image.controller_epoch) != (before.controller_id, before.controller_epoch)
        if succession or delta.brokers or delta.broker_configs:
            self._queue_topics(image.topics)
            self._brokers_changed = True
        else:
            self._queue_topics((*delta.created, *delta.altered, *delta.configs))
            if any(name in INTERNAL_TOPICS for name in (*delta.created, *delta.altered)):
                self._brokers_changed = True
        if self.is_controller:
            self._report.follow(delta, before)
        self._run_round()
        self._send_report()

    def _send_report(self) -> None:
        self._outbox.effects += self._report.take(settled=not self._under_way and not self._topics)

    def brokers_to_watch(self) -> list[BrokerId]:
        """The brokers whose death this one should notice by a connection: the controller watches all others, they watch
        it."""
        image, here = self._metadata.image, self._metadata.broker_id
        if self.is_controller:
            return [broker_id for broker_id in image.brokers if broker_id != here]
        return [image.controller_id] if has_controller(image) else []

    def broker_unreachable(self, broker_id: BrokerId) -> None:
        """End the registration of a broker whose port is closed, before its session ends."""
        image = self._metadata.image
        broker = image.brokers.get(broker_id)
        if broker is not None and broker_id != self._metadata.broker_id:
            # Any broker may do this: a live one is only fenced by it, and registers again.
            self._commits.commit(end_registration(image, broker), lambda _outcome: None)

    def end(self) -> None:
        """Stop claiming the controller's role."""
        self._is_stopping = True

    def _queue_topics(self, topics: Iterable[TopicName]) -> None:
        self._topics.update(dict.fromkeys(topics))

    def _run_round(self) -> None:
        if self._under_way or self._is_pausing:
            return
        image = self._metadata.image
        if self._metadata.broker_id not in image.brokers:
            return
        if not has_controller(image):
            if not self._is_stopping:
                self._begin([claim_controller(image, self._metadata.broker_id, self._deadlines.now_ms)], [])
        elif self.is_controller:
            self._decide(image)
        else:
            self._topics.clear()
            self._brokers_changed = False

    def _decide(self, image: ClusterImage) -> None:
        topics = self._next_topics(image)
        commits = settle_partitions(image, topics, self._is_unclean, self._limit_bytes)
        if not commits and self._topics:
            self._schedule_rebalance(topics)
            self._schedule_round()
            return
        if not commits and self._brokers_changed:
            commits = self._after_brokers_changed(image)
            self._brokers_changed = bool(commits)
        if commits:
            self._begin(commits, topics)
        else:
            self._conflicts = 0
            self._schedule_rebalance(topics)

    def _next_topics(self, image: ClusterImage) -> list[TopicName]:
        names, partitions = [], 0
        for name in self._topics:
            topic = image.topics.get(name)
            partitions += 0 if topic is None else len(topic.partitions)
            names.append(name)
            if partitions >= PARTITIONS_A_ROUND:
                break
        for name in names:
            del self._topics[name]
        return names

    def _schedule_round(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._deadlines.at(self._deadlines.now_ms + 1, self._run_scheduled)

    def _run_scheduled(self, _now_ms: int) -> None:
        self._is_scheduled = False
        self._run_round()
        self._send_report()

    def _after_brokers_changed(self, image: ClusterImage) -> list[list[Operation]]:
        """The next step once every partition is settled for the present brokers."""
        released = end_fencing(image, self._is_unclean, self._deadlines.now_ms)
        if released:
            return [released]
        raised = raise_format(image)
        if raised:
            return [raised]
        if image.topics.keys().isdisjoint(INTERNAL_TOPICS):
            return []
        from oncelog.core.controller.topics.internal_topics import grow  # imports much; not needed before

        return grow(image, self._metadata.config, self._limit_bytes)

    def _begin(self, commits: Sequence[Sequence[Operation]], topics: Iterable[TopicName]) -> None:
        self._failed = False
        self._under_way = len(commits)
        for operations in commits:
            self._commits.commit(operations, partial(self._done, list(topics)))

    def _done(self, topics: Sequence[TopicName], outcome: CommitOutcome) -> None:
        self._under_way -= 1
        if outcome is not CommitOutcome.COMMITTED:
            self._failed = True
            self._queue_topics(topics)
        if outcome is CommitOutcome.UNAVAILABLE:
            # The tree cannot be written: wait before the next attempt.
            self._conflicts = CONFLICTS_AT_ONCE
        if self._under_way:
            return
        if not self._failed:
            self._conflicts, self._limit_bytes = 0, ROUND_COMMIT_BYTES
            self._run_round()
            self._send_report()
            return
        self._conflicts += 1
        self._limit_bytes = max(SMALLEST_COMMIT_BYTES, self._limit_bytes // 4)
        # Others may be changing the same partitions; smaller commits conflict less.
        if self._conflicts < CONFLICTS_AT_ONCE:
            self._run_round()
        else:
            self._is_pausing = True
            self._deadlines.at(self._deadlines.now_ms + RETRY_MS, self._again)

    def _again(self, _now_ms: int) -> None:
        self._is_pausing, self._conflicts = False, 0
        self._run_round()

    def _is_unclean(self, topic: TopicImage) -> bool:
        return self._metadata.topic_config(topic).unclean_leader_election

    def _schedule_rebalance(self, topics: Iterable[TopicName]) -> None:
        image, config = self._metadata.image, self._metadata.config
        if self._rebalance_scheduled or not config.get("auto.leader.rebalance.enable"):
            return
        altered = (image.topics.get(name) for name in topics)
        if any(
            has_unpreferred_leader(partition, image.brokers)
            for topic in altered
            if topic
            for partition in topic.partitions
        ):
            self._rebalance_scheduled = True
            interval_ms = int(config.get("leader.imbalance.check.interval.seconds")) * SECOND_MS
            self._deadlines.at(self._deadlines.now_ms + interval_ms, self._rebalance)

    def _rebalance(self, _now_ms: int) -> None:
        self._rebalance_scheduled = False
        if not self.is_controller or self._under_way or self._is_pausing:
            self._queue_topics(self._metadata.image.topics)  # scheduled again after the round in flight
            self._run_round()
            return
        image = self._metadata.image
        commits = rebalance(image, image.topics.values(), self._limit_bytes)
        if commits:
            self._outbox.effects.append(Report("info", "electing preferred leaders"))
            self._queue_topics(image.topics)
            self._begin(commits, ())
