"""The search for the first refused record, and the attempts to go on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import INT64_MAX
from oncelog.client.machine.pending_batch import Failed
from oncelog.mirror.framing import Frame, Run
from oncelog.mirror.refusals import BatchRefusal, Refused, Trial, refusal_of

WHERE = TopicPartition(TopicName("t"), 0)
RECORD_BYTES = 100


def failed(code: int, *named: int) -> Failed:
    return Failed(WHERE, [], code, "no", False, 1, named)


def test_a_named_record_is_found_by_its_source_offset() -> None:
    frame = Frame(bytearray(500), (Run(10, 2), Run(20, 3)))
    refusal = refusal_of(failed(ErrorCode.INVALID_TIMESTAMP, 3, 4), frame)
    assert refusal == BatchRefusal(Refused(21, ErrorCode.INVALID_TIMESTAMP, "no"), True, 500, 23)


@pytest.mark.parametrize(
    "other",
    [
        failed(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        failed(ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_other_failures_are_no_refusals(other: Failed) -> None:
    assert refusal_of(other, Frame(bytearray(5), (Run(0, 1),))) is None


@pytest.mark.parametrize(
    ("code", "records", "is_exact"),
    [
        (ErrorCode.UNKNOWN_SERVER_ERROR, 1000, False),
        (ErrorCode.CORRUPT_MESSAGE, 2, False),
        (ErrorCode.POLICY_VIOLATION, 2, False),
        (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, 2, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 1, True),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1000, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS, 1000, True),
    ],
)
def test_a_refused_batch_of_several_records_does_not_stand_yet(code: int, records: int, is_exact: bool) -> None:
    refusal = refusal_of(failed(code), Frame(bytearray(records * RECORD_BYTES), (Run(0, records),)))
    assert refusal is not None
    trial = Trial(refusal.refused, refusal.is_exact)
    trial.refuse(refusal, 0)
    assert trial.stands(0) is is_exact
    assert trial.is_due(0, 0) is not is_exact


class Target:
    """A source of 100 records, of which the target refuses some."""

    def __init__(self, bad: set[int], *, names: bool, code: int) -> None:
        self.bad = bad
        self.names = names
        self.code = code
        self.position = 0
        self.aborted = 0

    def attempt(self, trial: Trial | None) -> BatchRefusal | int:
        """Copy the next records in frames: the refusal, or the offset behind them."""
        end = min(100, 100 if trial is None else trial.end_offset(self.position))
        most = 50 if trial is None else max(1, min(50, trial.limit_bytes // RECORD_BYTES))
        for first in range(self.position, end, most):
            frame = Frame(bytearray(min(most, end - first) * RECORD_BYTES), (Run(first, min(most, end - first)),))
            bad = tuple(offset - first for offset in sorted(self.bad) if first <= offset < first + frame.records)
            if bad:
                self.aborted += 1
                refusal = refusal_of(failed(self.code, *(bad if self.names else ())), frame)
                assert refusal is not None
                return refusal
        self.position = end
        return end

    def run(self) -> Iterator[Trial]:
        """Yield the trial each time when the partition stands; ends when all is copied."""
        first = self.attempt(None)
        assert isinstance(first, BatchRefusal)
        trial, now_ms = Trial(first.refused, first.is_exact), 0
        trial.refuse(first, now_ms)
        while True:
            while not trial.is_due(self.position, now_ms):
                yield trial
                now_ms = max(now_ms, trial.due_ms)
            attempt = self.attempt(trial)
            if isinstance(attempt, BatchRefusal):
                trial.refuse(attempt, now_ms)
            elif trial.passed(attempt) or attempt == 100:
                return


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (True, ErrorCode.INVALID_TIMESTAMP),
        (False, ErrorCode.MESSAGE_TOO_LARGE),
        (False, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
@pytest.mark.parametrize("bad", [{0}, {37}, {99}, {10, 11, 60}])
def test_it_stands_at_each_refused_record_until_that_is_taken(bad: set[int], names: bool, code: int) -> None:
    target = Target(set(bad), names=names, code=code)
    stood = []
    for trial in target.run():
        assert trial.stands(target.position)
        stood.append(target.position)
        if len(stood) % 3 == 0:
            target.bad.discard(target.position)
    assert target.position == 100
    assert stood == [offset for offset in sorted(bad) for _ in range(3)]
    assert target.aborted <= (6 if names else 10) * len(bad)


def test_pauses_grow_to_a_minute() -> None:
    trial = Trial(Refused(5, 32, None))
    pauses = []
    for _ in range(8):
        trial.refuse(BatchRefusal(Refused(5, 32, None), True, 0, INT64_MAX), 0)
        pauses.append(trial.due_ms)
    assert pauses == [2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]
