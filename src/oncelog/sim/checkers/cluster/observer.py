"""Checks the tree's journal, the disks and the nodes of all brokers while the simulation runs.

It inspects nodes and disks; rules about the view of clients are elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from oncelog.base.ids import BrokerId, TopicId, TopicPartition
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.image.model import UNKNOWN_BROKER_EPOCH
from oncelog.sim.checkers.cluster.in_sync import InSyncReplicas
from oncelog.sim.checkers.cluster.replicas import (
    DIFFERS,
    PRODUCERS_DIFFER,
    LogStarts,
    differences_at_rest,
    members_agree,
    producers_agree,
    replicas_agree,
)
from oncelog.sim.checkers.cluster.tree_journal import TreeJournal
from oncelog.sim.checkers.disk.scan import scan
from oncelog.sim.checkers.wire.appends import AcknowledgedBatch
from oncelog.sim.virtual.broker_host import BrokerHost
from oncelog.sim.virtual.tree_session import TreeHost
from oncelog.storage.log.partition_log import PartitionLog

LiveLogs = Mapping[BrokerId, Mapping[TopicPartition, PartitionLog]]

STALE_IMAGE: Final = "R9 image is not the tree"
LACKING: Final = "R4 live member lacks what was told"
EARLIER_LIFE: Final = "R3 leads in an epoch of an earlier life"
NEEDLESS: Final = "R15 needless election"
# The shortest pause of a process for which others may replace it.
REPLACED_AFTER_MS: Final = 1_000
# The time after a pause in which others may not have heard yet that it is over.
UNHEARD_MS: Final = 2_000
CHECKS_PER_DISK_CHECK: Final = 10
RECHECKED_US: Final = 1_000_000
# High watermarks shown to clients between two checks of a partition's disks.
WATERMARKS_PER_CHECK: Final = 8


class ClusterObserver:
    def __init__(
        self,
        brokers: Sequence[BrokerHost],
        tree: TreeHost,
        violated: Callable[[str], None],
        *,
        synced: bool = True,
    ) -> None:
        self.brokers = brokers
        self._violated = violated
        self._kernel = tree.kernel
        self.journal = TreeJournal(tree.tree, self._report_soon)
        self.in_sync = InSyncReplicas(
            self.journal,
            {BrokerId(broker.broker_id): broker.files for broker in brokers},
            self._report,
            synced=synced,
        )
        self._log_starts = LogStarts(self._report)
        self._watermarks_seen = 0
        self._checks = 0
        # Partitions with a new in-sync member: each new watermark is checked until this time (µs).
        self._rechecked_until: dict[TopicPartition, int] = {}
        self.journal.on_change.append(self._changed)
        for broker in brokers:
            broker.call_on_lost_disk(partial(self._lost_disk, broker))
            broker.call_on_start(partial(self._started, broker))
            broker.call_on_flip(partial(self.in_sync.damaged, BrokerId(broker.broker_id)))

    def record_watermark(self, partition: TopicPartition, topic_id: TopicId, offset: int) -> None:
        self.in_sync.record_watermark(partition, topic_id, offset)
        self._watermarks_seen += 1
        if (
            self._watermarks_seen % WATERMARKS_PER_CHECK == 0
            or self._rechecked_until.get(partition, 0) > self._kernel.now_us
        ):
            self.in_sync.check(partition)

    def deleted(self, partition: TopicPartition, topic_id: TopicId, before: int) -> None:
        image = self.journal.image
        state, topic = image.partition(partition), image.topics.get(partition.topic)
        if state is None or topic is None or topic.topic_id != topic_id:
            return
        leader = next((broker for broker in self.brokers if broker.broker_id == state.leader and broker.is_up), None)
        if leader is None:
            return
        live, logs, starts = leader.node.cluster.image.brokers, self._live_logs(), {}
        for member in self.in_sync.members(partition):
            registered, log = image.brokers.get(member), logs.get(member, {}).get(partition)
            if registered is not None and not registered.fenced and live.get(member) == registered and log is not None:
                starts[member] = int(log.log_start_offset)
        self._log_starts.deleted(partition, topic_id, before, starts)

    def check(self) -> None:
        self._checks += 1
        logs = self._live_logs()
        for partition, _ in self.journal.partitions():
            self._check_lengths(partition, logs)
        for broker in self.brokers:
            if broker.is_up:
                self._check_leaderships(broker)
        if self._checks % CHECKS_PER_DISK_CHECK == 0:
            self._check_everything(logs)

    def _live_logs(self) -> LiveLogs:
        return {BrokerId(broker.broker_id): broker.node.logs.logs for broker in self.brokers if broker.is_up}

    def _check_lengths(self, partition: TopicPartition, logs: LiveLogs) -> None:
        high_watermark, topic_id = (
            self.in_sync.high_watermark(partition),
            self.journal.image.topics[partition.topic].topic_id,
        )
        for member in self.in_sync.members(partition) if high_watermark else ():
            log = logs.get(member, {}).get(partition)
            if log is not None and log.topic_id == topic_id and log.log_end_offset < high_watermark:
                detail = f"{high_watermark} was shown, broker {member} has {log.log_end_offset}"
                self._report(LACKING, f"{partition}: {detail}")

    def _check_everything(self, logs: LiveLogs) -> None:
        for broker in self.brokers:
            if broker.is_up:
                self._compare_image(broker)
                for partition, topic_id, offset in self._led(broker):
                    self.in_sync.record_watermark(partition, topic_id, offset)
        self.in_sync.check_all()
        for partition, state in self.journal.partitions():
            replicas = {member: logs[member][partition] for member in state.isr if partition in logs.get(member, {})}
            for instance in producers_agree(partition, replicas):
                self._report(PRODUCERS_DIFFER, instance)

    def _changed(self, before: ClusterImage, after: ClusterImage) -> None:
        # Check a partition at once when a replica joins its in-sync set, and often for a while.
        if after.topics is before.topics:
            return
        for name, topic in after.topics.items():
            previous = before.topics.get(name)
            if previous is None or previous is topic or previous.topic_id != topic.topic_id:
                continue
            for index, (old, new) in enumerate(zip(previous.partitions, topic.partitions, strict=False)):
                if set(new.isr) - set(old.isr):
                    partition = TopicPartition(name, index)
                    self._rechecked_until[partition] = self._kernel.now_us + RECHECKED_US
                    self._kernel.soon(self._check_joined, partition)

    def _check_joined(self, partition: TopicPartition) -> None:
        if self.journal.image.has_partition(partition):
            self.in_sync.check(partition)
            self._check_lengths(partition, self._live_logs())

    def _found_frozen(self, observer: BrokerHost, suspect: BrokerId) -> None:
        """R15: only a broker whose process stands still is replaced before its session ends."""
        host = next(broker for broker in self.brokers if broker.broker_id == suspect)
        since_ms = self._kernel.now_ms() - UNHEARD_MS
        if host.is_up and not host.has_stood_still(REPLACED_AFTER_MS, since_ms):
            self._report_soon(NEEDLESS, f"broker {observer.broker_id} found broker {suspect} frozen, which was running")

    def _started(self, broker: BrokerHost) -> None:
        if broker.is_up:
            broker.node.links.on_frozen.append(partial(self._found_frozen, broker))
            self._check_leaderships(broker)
            broker_id = BrokerId(broker.broker_id)
            starts = {
                (partition, log.topic_id): int(log.log_start_offset)
                for partition, log in broker.node.logs.logs.items()
                if broker_id in self.in_sync.members(partition)
            }
            self._log_starts.started(broker_id, starts)

    def _check_leaderships(self, broker: BrokerHost) -> None:
        """R3: a leader was elected in its present registration."""
        cluster = broker.node.cluster
        for led in broker.node.partitions.leader_logs():
            state = cluster.image.partition(led.partition)
            if state is None or not led.replicas.has_followers or led.leader_epoch != state.leader_epoch:
                continue
            if state.leader_broker_epoch not in (cluster.broker_epoch, UNKNOWN_BROKER_EPOCH):
                detail = f"broker {broker.broker_id} of registration {cluster.broker_epoch} leads in {led.leader_epoch}"
                self._report(EARLIER_LIFE, f"{led.partition}: {detail}, elected in {state.leader_broker_epoch}")

    def partitions_only_on(self, broker: BrokerHost) -> list[str]:
        return [str(name) for name, state in self.journal.partitions() if state.replicas == (broker.broker_id,)]

    def unreplicated(self) -> frozenset[TopicPartition]:
        return frozenset(name for name, state in self.journal.partitions() if len(state.replicas) == 1)

    def must_have(self, broker: BrokerHost, batch: AcknowledgedBatch) -> bool:
        # True if an acknowledged batch must be on the broker's disk now: the broker is an electable replica.
        return BrokerId(broker.broker_id) in self.in_sync.members(batch.partition)

    def compare_disks(self) -> None:
        """R2 over all disks as they are now, also those of stopped brokers."""
        disks = {}
        for broker in self.brokers:
            with broker.files.examined() as files:
                disks[BrokerId(broker.broker_id)] = scan(files)
        for instance in (
            *replicas_agree(disks),
            *members_agree(disks, self.in_sync.members, self.in_sync.high_watermark),
        ):
            self._report(DIFFERS, instance)

    def differences_at_rest(self) -> list[tuple[str, str]]:
        """R10 at this moment: (rule, instance)."""
        ends = {
            BrokerId(broker.broker_id): {
                partition: int(log.log_end_offset) for partition, log in broker.node.logs.logs.items()
            }
            for broker in self.brokers
            if broker.is_up
        }
        return list(differences_at_rest(self.journal, ends))

    def _led(self, broker: BrokerHost) -> Iterator[tuple[TopicPartition, TopicId, int]]:
        for led in broker.node.partitions.leader_logs():
            state = self.journal.image.partition(led.partition)
            if state is not None and state.leader == broker.broker_id and state.leader_epoch == led.leader_epoch:
                yield led.partition, led.log.topic_id, led.replicas.high_watermark

    def _compare_image(self, broker: BrokerHost) -> None:
        cluster = broker.node.cluster
        expected = self.journal.images.get(cluster.position)
        if expected is None or expected != cluster.image:
            self._report(STALE_IMAGE, f"broker {broker.broker_id} at position {cluster.position}")

    def lost_power(self, broker: BrokerHost) -> None:
        self.in_sync.lost_power(BrokerId(broker.broker_id))

    def _lost_disk(self, broker: BrokerHost) -> None:
        self.in_sync.lost_disk(BrokerId(broker.broker_id), broker.files)
        self._log_starts.lost_disk(BrokerId(broker.broker_id))

    def _report_soon(self, rule: str, instance: str) -> None:
        # Report a violation found during a commit later: raised now, its writer would see a failed commit.
        self._kernel.soon(self._report, rule, instance)

    def _report(self, rule: str, instance: str) -> None:
        self._violated(f"{rule}: {instance}")
