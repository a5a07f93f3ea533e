"""Bugs of clusters: replicas, in-sync sets, leadership, the right to write to the tree; they need several brokers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from oncelog.admin.transactions import second_look
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.base.tree import CommitOutcome
from oncelog.core.replicas.leader import LeaderReplicas
from oncelog.handlers import list_offsets
from oncelog.handlers.fetch import reads
from oncelog.node import assembly
from oncelog.node.broker_requests.awaited_markers import AwaitedMarkers
from oncelog.node.broker_requests.marker_requests import MarkerRequests
from oncelog.node.metadata_log import MetadataLog
from oncelog.node.partitions.roles import ReplicaRoles
from oncelog.node.replication import in_sync_sets
from oncelog.node.replication.damaged_replicas import DamagedReplicas
from oncelog.node.replication.fetcher import LeaderFetcher
from oncelog.sim.mutants.mutant import Mutant
from oncelog.storage.log import append_replicated, truncate
from oncelog.storage.log.leader_epochs import LeaderEpochs

# The high watermark


def _committed_only(right: Any) -> Any:
    def settle(self: LeaderReplicas) -> Any:
        if not self.has_enough_in_sync():
            return self.high_watermark
        ends = [follower.end for replica, follower in self._followers.items() if replica in self.in_sync]
        self.high_watermark = max(self.high_watermark, min([self._end, *ends]))
        return self.high_watermark

    return settle


def _leader_alone(right: Any) -> Any:
    def settle(self: LeaderReplicas) -> Any:
        self.high_watermark = max(self.high_watermark, self._end)
        return self.high_watermark

    return settle


def _last_standing(right: Any) -> Any:
    def settle(self: LeaderReplicas) -> Any:
        least, self.min_insync_replicas = self.min_insync_replicas, 1
        try:
            return right(self)
        finally:
            self.min_insync_replicas = least

    return settle


# The in-sync set


def _below_epoch_start(right: Any) -> Any:
    def may_join(self: LeaderReplicas, replica: Any) -> bool:
        follower = self._followers.get(replica)
        return follower is not None and replica not in self._maximal() and follower.end >= 0

    return may_join


def _whatever_registration(right: Any) -> Any:
    def may_be_in_sync(image: Any, replica: Any, broker_epoch: int) -> bool:
        return replica in image.brokers

    return may_be_in_sync


def _unknown_is_refused(right: Any) -> Any:
    def written(self: MetadataLog, event: Any) -> None:
        if event.outcome is CommitOutcome.UNKNOWN:
            event = replace(event, outcome=CommitOutcome.CONFLICT)
        right(self, event)

    return written


# Followers


def _unsynced(right: Any) -> Any:
    def sync(self: LeaderFetcher, copy: Any) -> None:
        self._go_on(copy)

    return sync


def _to_high_watermark(right: Any) -> Any:
    def follow(self: LeaderFetcher, partition: Any, log: Any, leader_epoch: Any) -> None:
        known = self._by_partition.get(partition)
        if known is None or known.leader_epoch != leader_epoch:
            log.truncate_to(log.high_watermark, self._services.deadlines.now_ms)
        right(self, partition, log, leader_epoch)

    return follow


def _never_diverges(right: Any) -> Any:
    def divergence(leader: Any, asked: Any) -> None:
        return None

    return divergence


def _divergence_counts(right: Any) -> Any:
    def read_one(self: Any, name: Any, asked: Any, max_bytes: int, minimum_one: bool) -> Any:
        source = self._source(name, asked)
        is_known = self._replica is not None and not isinstance(source, ErrorCode)
        if is_known and source.log.log_start_offset <= asked.fetch_offset <= source.log.log_end_offset:
            self._note_fetched(source, self._replica, asked)
        return right(self, name, asked, max_bytes, minimum_one)

    return read_one


def _producers_kept(right: Any) -> Any:
    def roll_back(log: Any, now_ms: int) -> None:
        log.producers.high_watermark_moved(log.high_watermark)

    return roll_back


def _epochs_kept(right: Any) -> Any:
    def truncate_from_end(self: LeaderEpochs, offset: int) -> None:
        """Forget nothing."""

    return truncate_from_end


# Damaged disks


def _losses_not_told(right: Any) -> Any:
    def registration(*known: Any) -> Any:
        return right(*known)._replace(lost=())

    return registration


def _copied_unchecked(right: Any) -> Any:
    def crc_matches(buffer: Any, position: int, header: Any) -> bool:
        return True

    return crc_matches


def _damage_passed_over(right: Any) -> Any:
    def look(self: DamagedReplicas, leader: Any, offset: Any) -> None:
        """Nobody looks."""

    return look


# Leadership


def _same_epoch_again(right: Any) -> Any:
    def leads(self: ReplicaRoles, image: Any) -> bool:
        return bool(image.leader == self._metadata.broker_id)

    return leads


def _half_resignation(right: Any) -> Any:
    def resign(self: ReplicaRoles, partition: TopicPartition) -> None:
        self._in_sync_sets.resign(partition)

    return resign


def _unconfirmed(right: Any) -> Any:
    def until_confirmed(answers: Any, asked_ms: int, context: Any) -> Any:
        yield from ()

    return until_confirmed


def _believed(right: Any) -> Any:
    def doubts_about(client: Any, claims: Any, unanswered: Any) -> Any:
        return {}

    return doubts_about


# Markers


def _unanswered_is_written(right: Any) -> Any:
    def answered(self: MarkerRequests, broker_id: Any, sent: Any, response: Any) -> None:
        if response is not None:
            right(self, broker_id, sent, response)
            return
        self._under_way.discard(broker_id)
        for queued in sent:
            queued.answer(ErrorCode.NONE)

    return answered


def _remote_decisions_passed_over(right: Any) -> Any:
    def send(self: AwaitedMarkers, broker_id: Any, message: Any, answered: Any) -> Any:
        answered(None)
        return lambda: None

    return send


CLUSTERS: Final = (
    Mutant(
        "watermark-of-committed-set",
        "the high watermark counts the committed in-sync set alone, not the one on its way to the tree (KIP-497)",
        LeaderReplicas,
        "settle",
        _committed_only,
        ("join-unheard",),
    ),
    Mutant(
        "watermark-of-leader",
        "the high watermark follows the leader's own disk",
        LeaderReplicas,
        "settle",
        _leader_alone,
    ),
    Mutant(
        "last-replica-standing",
        "the high watermark moves on though fewer than min.insync.replicas are in sync (KIP-966)",
        LeaderReplicas,
        "settle",
        _last_standing,
        ("broker-isolated", "kill"),
    ),
    Mutant(
        "joins-below-epoch-start",
        "a follower joins the in-sync set wherever it is (KAFKA-7128)",
        LeaderReplicas,
        "may_join",
        _below_epoch_start,
        ("killed-ahead", "joiner-frozen"),
    ),
    Mutant(
        "stale-broker-epoch-joins",
        "a follower joins by a fetch of an earlier registration (KAFKA-14139)",
        in_sync_sets,
        "may_be_in_sync",
        _whatever_registration,
        ("lose-disk-unheard",),
    ),
    Mutant(
        "unknown-is-refused",
        "a commit to the tree whose outcome is not known counts as refused",
        MetadataLog,
        "written",
        _unknown_is_refused,
        ("join-unheard",),
    ),
    Mutant(
        "follower-asks-unsynced",
        "a follower asks for more before what it has is on its disk",
        LeaderFetcher,
        "_sync",
        _unsynced,
    ),
    Mutant(
        "truncate-to-high-watermark",
        "a follower begins by cutting its log to the high watermark it knows (KIP-101)",
        LeaderFetcher,
        "follow",
        _to_high_watermark,
    ),
    Mutant(
        "divergence-not-told",
        "a leader does not look whether a follower's log parts from its own",
        reads,
        "_divergence",
        _never_diverges,
        ("killed-ahead",),
    ),
    Mutant(
        "divergence-counts",
        "a fetch from behind where the logs part counts as progress (KAFKA-13141)",
        reads.FetchReads,
        "_read_one",
        _divergence_counts,
        ("returns-ahead",),
    ),
    Mutant(
        "producers-not-rolled-back",
        "truncation leaves producers and open transactions as they were",
        truncate,
        "_roll_back_producers",
        _producers_kept,
        ("killed-ahead",),
    ),
    Mutant(
        "epochs-kept-on-truncation",
        "truncation leaves leader epochs as they were (KAFKA-10706)",
        LeaderEpochs,
        "truncate_from_end",
        _epochs_kept,
        ("killed-ahead",),
    ),
    Mutant(
        "losses-not-told",
        "a broker whose durable records are damaged joins as if it had them",
        assembly,
        "_registration",
        _losses_not_told,
        ("flipped-bit",),
    ),
    Mutant(
        "copied-unchecked",
        "a follower copies batches without a look at their checksums",
        append_replicated,
        "crc_matches",
        _copied_unchecked,
        ("flipped-bit-in-leader",),
    ),
    Mutant(
        "damage-passed-over",
        "a leader whose records are damaged leads on",
        DamagedReplicas,
        "look",
        _damage_passed_over,
        ("flipped-bit-in-leader",),
    ),
    Mutant(
        "leads-again-in-its-epoch",
        "a leader that was restarted leads on in the epoch of its last life",
        ReplicaRoles,
        "leads",
        _same_epoch_again,
        ("power-cut", "power-cut-at-sync"),
    ),
    Mutant(
        "half-resignation",
        "a broker that does not lead a partition any more goes on answering for it (KAFKA-9307)",
        ReplicaRoles,
        "_resign",
        _half_resignation,
    ),
    Mutant(
        "ends-unconfirmed",
        "a leader tells where a log ends without asking whether another leads by now",
        list_offsets,
        "until_confirmed",
        _unconfirmed,
        ("tree-isolated",),
    ),
    Mutant(
        "leaders-believed",
        "the tool does not ask all brokers who leads",
        second_look,
        "doubts_about",
        _believed,
        ("tree-isolated",),
    ),
    Mutant(
        "unanswered-marker-counts",
        "a marker to another broker counts as written when no answer comes",
        MarkerRequests,
        "_answered",
        _unanswered_is_written,
        ("killed-before-marker",),
    ),
    Mutant(
        "remote-decisions-passed-over",
        "a group coordinator does not ask other brokers which transactions are decided and lack their markers",
        AwaitedMarkers,
        "send",
        _remote_decisions_passed_over,
        ("broker-cut", "broker-isolated"),
    ),
)
"""Looked for in clusters (``oncelog sim --cluster --plant NAME``)."""
