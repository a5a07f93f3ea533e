"""The disk observer: reads a broker's data directory while the broker is down, and changes nothing in it.

After a stop, or after a crash and before the next start, :func:`check_disk` says what may not be there, or be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from oncelog.base.ids import INTERNAL_TOPICS, TRANSACTION_STATE, TopicPartition
from oncelog.ports import Files
from oncelog.sim.checkers.disk import logs as alone
from oncelog.sim.checkers.disk.admin_aborts import End
from oncelog.sim.checkers.disk.logs import ChangingTopics
from oncelog.sim.checkers.disk.recovery import recovery
from oncelog.sim.checkers.disk.scan import ScannedLog, scan
from oncelog.sim.checkers.disk.transactions import markers
from oncelog.sim.checkers.wire.appends import AcknowledgedBatch
from oncelog.storage.log_config import LogConfig, StorageConfig


def check_disk(
    files: Files,
    *,
    acknowledged: Iterable[AcknowledgedBatch] = (),
    kept: ChangingTopics | None = None,
    torn: bool = False,
    settled: bool = False,
    restarted_at_ms: Sequence[int] = (),
    ended: Iterable[End] | None = None,
    config_of: Callable[[TopicPartition], LogConfig] = lambda _: LogConfig(),
    storage: StorageConfig | None = None,
    now_ms: int = 0,
    is_alone: bool = True,
    unreplicated: Collection[TopicPartition] = (),
) -> dict[str, list[str]]:
    """Rule (number and name) → its instances; empty when there is none. A directory that is not there is empty.

    ``acknowledged``: what must be there (``WireObserver.acknowledged_batches``). ``torn``: the power was lost, so that
    logs may end in rubble. ``settled``: no client is left and every transaction had time to end; not for directories
    with prepared two-phase transactions. ``restarted_at_ms``: when the broker started, by the clock of its markers; who
    starts again may write markers again. ``ended``: what others than coordinators have ended by the audit log (None:
    there is none). ``is_alone``: no other broker has a part of the logs, so that markers and decisions are all here; of
    several brokers :func:`check_markers` compares them. ``unreplicated``: partitions of a cluster that nobody follows,
    whose leader epochs need not be exact after a power cut. ``now_ms`` decides which producers have expired.
    """
    kept = kept or ChangingTopics()
    kept = kept._replace(compacted=kept.compacted.union(INTERNAL_TOPICS))
    found: dict[str, list[str]] = {}
    scanned = scan(files, with_records=frozenset({TRANSACTION_STATE}))
    for log in scanned.values():
        if torn and log.partition.topic not in kept.compacted:
            log.cut_at_gap()
        for rule, instance in alone.one_log(log, kept, torn=torn):
            found.setdefault(rule, []).append(instance)
    for rule, instance in (
        *alone.acknowledged(scanned, acknowledged, kept),
        *(markers(scanned, kept, settled=settled, restarted_at_ms=restarted_at_ms, ended=ended) if is_alone else ()),
        *recovery(files, scanned, config_of=config_of, now_ms=now_ms, storage=storage, unreplicated=unreplicated),
    ):
        found.setdefault(rule, []).append(instance)
    return found


def check_markers(
    disks: Iterable[Files], *, kept: ChangingTopics, settled: bool, ended: Iterable[End] | None
) -> dict[str, list[str]]:
    """D6 and D7 over the disks of several brokers at rest, each with a part of the logs; replicas are alike then."""
    merged: dict[TopicPartition, ScannedLog] = {}
    for files in disks:
        for partition, log in scan(files, with_records=frozenset({TRANSACTION_STATE})).items():
            known = merged.get(partition)
            if known is None or known.end < log.end:
                merged[partition] = log
    kept = kept._replace(compacted=kept.compacted.union(INTERNAL_TOPICS))
    found: dict[str, list[str]] = {}
    for rule, instance in markers(merged, kept, settled=settled, ended=ended, may_repeat=True):
        found.setdefault(rule, []).append(instance)
    return found
