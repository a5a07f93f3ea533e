"""Checks a broker's data directory while the broker is down, without changing it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from oncelog.base.ids import CONSUMER_OFFSETS, INTERNAL_TOPICS, TRANSACTION_STATE, TopicPartition, group_by_key
from oncelog.ports import Files
from oncelog.sim.checkers.disk import logs as alone
from oncelog.sim.checkers.disk.admin_aborts import End
from oncelog.sim.checkers.disk.groups import groups
from oncelog.sim.checkers.disk.logs import ChangingTopics
from oncelog.sim.checkers.disk.recovery import recovery
from oncelog.sim.checkers.disk.scan import ScannedLog, scan
from oncelog.sim.checkers.disk.transactions import markers
from oncelog.sim.checkers.wire.appends import AcknowledgedBatch
from oncelog.storage.log_config import LogConfig, StorageConfig


def check_disk(
    files: Files,
    *,
    # Batches that must exist (`WireObserver.acknowledged_batches`).
    acknowledged: Iterable[AcknowledgedBatch] = (),
    kept: ChangingTopics | None = None,
    # After a power cut, logs may end in garbage.
    torn: bool = False,
    # No client is left and every transaction had time to end. Not for directories with prepared two-phase transactions.
    settled: bool = False,
    # Starts of the broker, by the clock of its markers: a coordinator that restarts may write markers again.
    restarted_at_ms: Sequence[int] = (),
    # Transactions ended by others than coordinators, from the audit log; None without one.
    ended: Iterable[End] | None = None,
    config_of: Callable[[TopicPartition], LogConfig] = lambda _: LogConfig(),
    storage: StorageConfig | None = None,
    # Decides which producers have expired.
    now_ms: int = 0,
    # The directory has all markers and decisions; those of several brokers are for `check_markers`.
    is_alone: bool = True,
    # Partitions of a cluster without followers: their leader epochs may be inexact after a power cut.
    unreplicated: Collection[TopicPartition] = (),
) -> dict[str, list[str]]:
    """Map each violated rule (number and name) to its instances. A missing directory is empty."""
    kept = kept or ChangingTopics()
    kept = kept._replace(compacted=kept.compacted.union(INTERNAL_TOPICS))
    instances: dict[str, list[str]] = {}
    scanned = scan(files, with_records=frozenset({TRANSACTION_STATE, CONSUMER_OFFSETS}))
    for log in scanned.values():
        if torn and log.partition.topic not in kept.compacted:
            log.cut_at_gap()
        for rule, instance in alone.check_log(log, kept, torn=torn):
            instances.setdefault(rule, []).append(instance)
    for rule, instance in (
        *alone.acknowledged(scanned, acknowledged, kept),
        *(markers(scanned, kept, settled=settled, restarted_at_ms=restarted_at_ms, ended=ended) if is_alone else ()),
        *(() if torn else groups(scanned)),
        *recovery(files, scanned, config_of=config_of, now_ms=now_ms, storage=storage, unreplicated=unreplicated),
    ):
        instances.setdefault(rule, []).append(instance)
    return instances


def check_markers(
    disks: Iterable[Files], *, kept: ChangingTopics, settled: bool, ended: Iterable[End] | None
) -> dict[str, list[str]]:
    """D6 and D7 over the disks of several brokers at rest, when replicas are equal."""
    merged: dict[TopicPartition, ScannedLog] = {}
    for files in disks:
        for partition, log in scan(files, with_records=frozenset({TRANSACTION_STATE})).items():
            longest = merged.get(partition)
            if longest is None or longest.end < log.end:
                merged[partition] = log
    kept = kept._replace(compacted=kept.compacted.union(INTERNAL_TOPICS))
    return group_by_key(markers(merged, kept, settled=settled, ended=ended, may_repeat=True))
