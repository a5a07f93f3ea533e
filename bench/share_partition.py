"""A share partition (KIP-932): what the leader spends on records that are acquired and acknowledged, without I/O."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Final

from tests.conformance.judge import Judge, judge_of_share_partitions
from tests.conformance.share.log import LogBatch
from tests.peers.supply import PeerMissing

from bench.options import Options, progress
from bench.report import Comparison, Figures, paired
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import MemberId, Offset
from oncelog.core.share.model import Acknowledgement, AcknowledgeType, ShareSettings, ShareState
from oncelog.core.share.partition import SharePartition
from oncelog.core.share.transitions import StateWrite

RECORDS: Final = 1000
_BATCH: Final = 100
_ROUNDS: Final = 2000
_MEMBER: Final = MemberId("m")
_WHOLE, _MIXED = "1,000 records in batches, CPU ms", "1,000 records of two types in turn, CPU ms"
_GOALS: Final = {_WHOLE: "≤ 2 ms", _MIXED: "≤ 20 ms"}
_HEADERS: Final = [LogBatch(base, base + _BATCH - 1, -1, "plain") for base in range(0, RECORDS, _BATCH)]
_MIXED_TYPES: Final = [AcknowledgeType.ACCEPT, AcknowledgeType.REJECT] * (RECORDS // 2)


def share_partition(options: Options) -> Comparison:
    """A share partition's CPU for 1,000 records: acquired, acknowledged, and done when the write is durable."""
    rounds = options.scaled(_ROUNDS)
    with _judge() as judge:
        theirs = "Apache Kafka's SharePartition" if judge else "–"

        def theirs_once(_: int) -> Figures:
            if judge is None:
                return {}
            return {
                _WHOLE: judge(op="bench", rounds=rounds, mixed=False)["cpu_us"] / 1000,
                _MIXED: judge(op="bench", rounds=rounds // 10, mixed=True)["cpu_us"] / 1000,
            }

        comparison = Comparison("A share partition", "oncelog", theirs, _GOALS)
        return paired(comparison, (lambda _: _ours(rounds), theirs_once), options.repeat, progress)


@contextlib.contextmanager
def _judge() -> Iterator[Judge | None]:
    """Apache Kafka's side, which is left out without its jars."""
    try:
        judge = judge_of_share_partitions().__enter__()
    except PeerMissing as missing:
        progress(str(missing))
        yield None
        return
    try:
        yield judge
    finally:
        judge.__exit__(None, None, None)


def _ours(rounds: int) -> Figures:
    return {
        _WHOLE: _cpu_ms(rounds, [AcknowledgeType.ACCEPT]),
        _MIXED: _cpu_ms(rounds // 10, _MIXED_TYPES),
    }


def _cpu_ms(rounds: int, types: list[AcknowledgeType]) -> float:
    started = time.thread_time()
    for _ in range(rounds):
        partition = SharePartition(ShareState(0, Offset(0), 0, []), ShareSettings())
        partition.acquire(
            _MEMBER,
            _HEADERS,  # type: ignore[arg-type]
            fetch_offset=Offset(0),
            record_limit=False,
            batch_size=RECORDS,
            max_records=RECORDS,
            now_ms=0,
        )
        write = partition.acknowledge(_MEMBER, [Acknowledgement(Offset(0), Offset(RECORDS - 1), types)], 0)
        assert isinstance(write, StateWrite)
        partition.written(write, ErrorCode.NONE)
        assert partition.start_offset == RECORDS
    return 1000 * (time.thread_time() - started) / rounds
