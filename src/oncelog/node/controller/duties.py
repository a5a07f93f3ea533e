"""The duties of a controller: it looks at what has changed, decides, commits, and looks again.

Every broker has them and is told every change of the image; it acts only while it is the controller by the image.
Where no controller is alive, it claims that place. Decisions are pure functions of the image (``core.controller``).

Invariants:
1. A commit names the controller epoch it was decided in: a controller that was replaced changes nothing (KAFKA-6082).
2. One round of decisions at a time: the next is decided on an image that has the outcomes of the one before. A conflict
   is decided again on the image that has what was in the way; after several in a row, or when the tree cannot be
   written, a moment later.
3. What is to be looked at is noted before it is decided and forgotten only when its commits are in the image.
4. A round looks at some thousand partitions, and the next round, in an event of its own, at the next ones: a broker
   that dies may have tens of thousands, and clients have their turn in between.
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
"""The pause before the next attempt, when the tree could not be written or changes kept coming in between."""
CONFLICTS_AT_ONCE: Final = 5
"""Rounds in a row that end in a conflict and are decided again at once."""
SMALLEST_COMMIT_BYTES: Final = 8 * 1024
ROUND_COMMIT_BYTES: Final = COMMIT_BYTES // 4
"""Bytes of a round's commit: some 250 partitions, which their new leaders take over in one event."""
PARTITIONS_A_ROUND: Final = 2_000


class ControllerDuties:
    """The controller's rounds: what has changed is looked at, decided and committed."""

    def __init__(self, metadata: Metadata, commits: MetadataLog, deadlines: Deadlines, outbox: Outbox) -> None:
        self._metadata = metadata
        self._commits = commits
        self._deadlines = deadlines
        self._outbox = outbox
        self._topics: dict[TopicName, None] = {}
        """Topics that changed since the last round, and have to be decided on."""
        self._brokers_changed = True
        """True while the brokers are to be looked at: the end of a fencing, internal topics that lack replicas."""
        self._under_way = 0
        self._failed = False
        """True if a commit of this round was refused."""
        self._conflicts = 0
        self._limit_bytes = ROUND_COMMIT_BYTES
        self._waits = False
        self._goes_on = False
        """True while the next round is due, with the event that comes next."""
        self._imbalance_noted = False
        self._ending = False
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
        """Look at everything once."""
        self._look_at(self._metadata.image.topics)
        self._act()

    def follow(self, delta: ImageDelta, before: ClusterImage) -> None:
        """Look at what a change of the image concerns."""
        image = delta.image
        succession = (image.controller_id, image.controller_epoch) != (before.controller_id, before.controller_epoch)
        if succession or delta.brokers or delta.broker_configs:
            self._look_at(image.topics)
            self._brokers_changed = True
        else:
            self._look_at((*delta.created, *delta.altered, *delta.configs))
            if any(name in INTERNAL_TOPICS for name in (*delta.created, *delta.altered)):
                self._brokers_changed = True
        if self.is_controller:
            self._report.follow(delta, before)
        self._act()
        self._tell()

    def _tell(self) -> None:
        self._outbox.effects += self._report.take(settled=not self._under_way and not self._topics)

    def watched(self) -> list[BrokerId]:
        """The brokers to notice the death of by a connection: all others on the controller, else the controller."""
        image, here = self._metadata.image, self._metadata.broker_id
        if self.is_controller:
            return [broker_id for broker_id in image.brokers if broker_id != here]
        return [image.controller_id] if has_controller(image) else []

    def broker_unreachable(self, broker_id: BrokerId) -> None:
        """End the registration of a broker at whose address nobody listens: it ends at once, rather than with its
        session. Any broker may say so: one that is alive is fenced by it and registers again."""
        image = self._metadata.image
        broker = image.brokers.get(broker_id)
        if broker is not None and broker_id != self._metadata.broker_id:
            self._commits.commit(end_registration(image, broker), lambda _outcome: None)

    def end(self) -> None:
        """Claim the place of the controller no more: this broker is about to stop."""
        self._ending = True

    def _look_at(self, topics: Iterable[TopicName]) -> None:
        self._topics.update(dict.fromkeys(topics))

    def _act(self) -> None:
        if self._under_way or self._waits:
            return
        image = self._metadata.image
        if self._metadata.broker_id not in image.brokers:
            return
        if not has_controller(image):
            if not self._ending:
                self._begin([claim_controller(image, self._metadata.broker_id, self._deadlines.now_ms)], [])
        elif self.is_controller:
            self._decide(image)
        else:
            self._topics.clear()
            self._brokers_changed = False

    def _decide(self, image: ClusterImage) -> None:
        topics = self._take_some(image)
        commits = settle_partitions(image, topics, self._is_unclean, self._limit_bytes)
        if not commits and self._topics:
            self._note_imbalance(topics)
            self._go_on_soon()
            return
        if not commits and self._brokers_changed:
            commits = self._after_brokers_changed(image)
            self._brokers_changed = bool(commits)
        if commits:
            self._begin(commits, topics)
        else:
            self._conflicts = 0
            self._note_imbalance(topics)

    def _take_some(self, image: ClusterImage) -> list[TopicName]:
        """The topics of the next round; they are not to be looked at after it, unless they change."""
        taken, partitions = [], 0
        for name in self._topics:
            topic = image.topics.get(name)
            partitions += 0 if topic is None else len(topic.partitions)
            taken.append(name)
            if partitions >= PARTITIONS_A_ROUND:
                break
        for name in taken:
            del self._topics[name]
        return taken

    def _go_on_soon(self) -> None:
        if not self._goes_on:
            self._goes_on = True
            self._deadlines.at(self._deadlines.now_ms + 1, self._go_on)

    def _go_on(self, _now_ms: int) -> None:
        self._goes_on = False
        self._act()
        self._tell()

    def _after_brokers_changed(self, image: ClusterImage) -> list[list[Operation]]:
        """The next thing to do once every partition is settled with the brokers there are."""
        released = end_fencing(image, self._is_unclean, self._deadlines.now_ms)
        if released:
            return [released]
        raised = raise_format(image)
        if raised:
            return [raised]
        if image.topics.keys().isdisjoint(INTERNAL_TOPICS):
            return []
        from oncelog.core.controller.topics.internal_topics import grow  # reassigns: no need of it before they exist

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
            self._look_at(topics)
        if outcome is CommitOutcome.UNAVAILABLE:
            self._conflicts = CONFLICTS_AT_ONCE
        if self._under_way:
            return
        if not self._failed:
            self._conflicts, self._limit_bytes = 0, ROUND_COMMIT_BYTES
            self._act()
            self._tell()
            return
        self._conflicts += 1
        self._limit_bytes = max(SMALLEST_COMMIT_BYTES, self._limit_bytes // 4)  # less of it is refused together
        if self._conflicts < CONFLICTS_AT_ONCE:
            self._act()
        else:
            self._waits = True
            self._deadlines.at(self._deadlines.now_ms + RETRY_MS, self._again)

    def _again(self, _now_ms: int) -> None:
        self._waits, self._conflicts = False, 0
        self._act()

    def _is_unclean(self, topic: TopicImage) -> bool:
        return self._metadata.topic_config(topic).unclean_leader_election

    # The return to preferred leaders

    def _note_imbalance(self, topics: Iterable[TopicName]) -> None:
        image, config = self._metadata.image, self._metadata.config
        if self._imbalance_noted or not config.get("auto.leader.rebalance.enable"):
            return
        found = (image.topics.get(name) for name in topics)
        if any(has_unpreferred_leader(each, image.brokers) for topic in found if topic for each in topic.partitions):
            self._imbalance_noted = True
            interval_ms = int(config.get("leader.imbalance.check.interval.seconds")) * SECOND_MS
            self._deadlines.at(self._deadlines.now_ms + interval_ms, self._rebalance)

    def _rebalance(self, _now_ms: int) -> None:
        self._imbalance_noted = False
        if not self.is_controller or self._under_way or self._waits:
            self._look_at(self._metadata.image.topics)  # noted again after what is under way
            self._act()
            return
        image = self._metadata.image
        commits = rebalance(image, image.topics.values(), self._limit_bytes)
        if commits:
            self._outbox.effects.append(Report("info", "electing preferred leaders"))
            self._look_at(image.topics)
            self._begin(commits, ())
