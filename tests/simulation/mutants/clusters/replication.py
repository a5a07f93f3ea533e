"""Bugs of replication: the high watermark, what followers fetch, truncate and copy, damaged disks."""

from __future__ import annotations

from typing import Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.core.replicas.leader import LeaderReplicas
from oncelog.handlers.fetch import reads
from oncelog.node import assembly
from oncelog.node.replication import fetcher
from oncelog.node.replication import partitions as manager
from oncelog.node.replication.damaged_replicas import DamagedReplicas
from oncelog.node.replication.fetcher import LeaderFetcher
from oncelog.storage.leader_epochs import UNDEFINED, LeaderEpochs
from oncelog.storage.log import append_replicated, truncate
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.storage.log.truncate import truncate_to
from tests.simulation.mutants.mutant import Mutant


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


def _of_quorum(right: Any) -> Any:
    def settle(self: LeaderReplicas) -> Any:
        if self.has_enough_in_sync():
            members = [follower.end for replica, follower in self._followers.items() if replica in self._maximal()]
            ends = sorted([self._end, *members], reverse=True)
            self.high_watermark = max(self.high_watermark, min(self._end, ends[self.min_in_sync() - 1]))
        return self.high_watermark

    return settle


def _of_foreign_epoch(right: Any) -> Any:
    def end_offset(self: LeaderEpochs, epoch: int, log_end_offset: int, leader_epoch: int) -> tuple[int, int]:
        result, end = right(self, epoch, log_end_offset, leader_epoch)
        return (result, end) if result == UNDEFINED else (epoch, end)

    return end_offset


def _leader_believed(right: Any) -> Any:
    def truncation_offset(leader_end: Any, own_end: Any, log_end_offset: int) -> Any:
        return min(leader_end.end_offset, log_end_offset)

    return truncation_offset


def _not_on_disk(right: Any) -> Any:
    def write_leader_epochs(self: PartitionLog, sync: Any = None) -> None:
        self.leader_epochs.changed = False

    return write_leader_epochs


def _any_epoch(right: Any) -> Any:
    def epoch_refusal(told: int, leader_epoch: int) -> Any:
        return None

    return epoch_refusal


def _of_leader_alone(right: Any) -> Any:
    def low_watermark(self: LeaderReplicas, own_start: Any, live: Any) -> Any:
        return own_start

    return low_watermark


def _told_before_kept(right: Any) -> Any:
    def persist_log_starts(self: LeaderFetcher) -> None:
        self._log_starts_rose = False

    return persist_log_starts


def _unsynced(right: Any) -> Any:
    def sync(self: LeaderFetcher, copy: Any) -> None:
        self._continue(copy)

    return sync


def _to_high_watermark(right: Any) -> Any:
    def follow(self: LeaderFetcher, partition: Any, log: Any, leader_epoch: Any) -> None:
        known = self._by_partition.get(partition)
        if known is None or known.leader_epoch != leader_epoch:
            truncate_to(log, log.high_watermark, self._services.deadlines.now_ms)
        right(self, partition, log, leader_epoch)

    return follow


def _never_diverges(right: Any) -> Any:
    def divergence(leader: Any, request: Any) -> None:
        return None

    return divergence


def _divergence_counts(right: Any) -> Any:
    def read_one(self: Any, name: Any, request: Any, max_bytes: int, minimum_one: bool) -> Any:
        source = self._source(name, request)
        is_known = self._replica is not None and not isinstance(source, ErrorCode)
        if is_known and source.log.log_start_offset <= request.fetch_offset <= source.log.log_end_offset:
            self._record_progress(source, self._replica, request)
        return right(self, name, request, max_bytes, minimum_one)

    return read_one


def _producers_kept(right: Any) -> Any:
    def roll_back(log: Any, now_ms: int) -> None:
        log.producers.high_watermark_moved(log.high_watermark)

    return roll_back


def _epochs_kept(right: Any) -> Any:
    def truncate_from_end(self: LeaderEpochs, offset: int) -> None:
        """Forget nothing."""

    return truncate_from_end


def _losses_not_told(right: Any) -> Any:
    def registration(*known: Any) -> Any:
        return right(*known)._replace(lost=())

    return registration


def _copied_unchecked(right: Any) -> Any:
    def crc_matches(buffer: Any, position: int, header: Any) -> bool:
        return True

    return crc_matches


def _damage_passed_over(right: Any) -> Any:
    def check(self: DamagedReplicas, leader: Any, offset: Any) -> None:
        """Checks nothing."""

    return check


REPLICATION: Final = (
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
        "watermark-of-quorum",
        "the high watermark moves when min.insync.replicas of the in-sync set have synced, not all of it",
        LeaderReplicas,
        "settle",
        _of_quorum,
    ),
    Mutant(
        "foreign-epoch-answered",
        "a leader answers for an epoch that it never had as if it had had it (KAFKA-6361, KIP-279)",
        LeaderEpochs,
        "end_offset",
        _of_foreign_epoch,
        ("killed-in-turn",),
    ),
    Mutant(
        "leaders-epoch-believed",
        "a follower truncates to where the leader says without a look at its own epochs (KAFKA-6361, KIP-279)",
        fetcher,
        "truncation_offset",
        _leader_believed,
        ("killed-in-turn",),
    ),
    Mutant(
        "fetches-of-any-epoch",
        "a leader serves and counts fetches that name another leader epoch than its own (KAFKA-6880)",
        manager,
        "_epoch_refusal",
        _any_epoch,
        ("held-fetch",),
    ),
    Mutant(
        "epochs-not-on-disk",
        "leader epochs are not written down when a segment is full (KAFKA-7415)",
        PartitionLog,
        "write_leader_epochs",
        _not_on_disk,
        ("kill",),
    ),
    Mutant(
        "log-start-of-leader",
        "DeleteRecords is answered before the followers' logs begin where the leader's does (KAFKA-7104)",
        LeaderReplicas,
        "low_watermark",
        _of_leader_alone,
    ),
    Mutant(
        "log-start-not-kept",
        "a follower tells where its log begins before that is on its disk (KAFKA-7104)",
        LeaderFetcher,
        "_keep_log_starts",
        _told_before_kept,
        ("power-cut-of-all",),
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
        "check",
        _damage_passed_over,
        ("flipped-bit-in-leader",),
    ),
)
