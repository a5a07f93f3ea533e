"""Whatever is lost or refused on the way: a committed transaction is there whole, an aborted one not at all, and
only a newer instance makes a producer unusable.

The coordinator here is a naive model: one transactional id, its epoch, what is pending and what is visible.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import ProducerUnusable, TransactionFailed
from oncelog.client.machine.offsets import Committed, GroupMetadata
from oncelog.client.machine.transaction_states import State, Verdict
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.client.machine.transactions import TransactionMachine
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from oncelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

PARTITION = TopicPartition(TopicName("t"), 0)


class CoordinatorModel:
    """The brokers' state of one transactional id."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.epoch = -1
        self.ended: str | None = None
        self.members: set[str] = set()
        self.pending: list[int] = []
        self.visible: list[int] = []

    def write(self, producer_epoch: int, text: str, value: int) -> int:
        """A batch or an offset with a value."""
        if producer_epoch != self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.version >= 2:
            self._open(text)
        elif text not in self.members:
            return ErrorCode.INVALID_TXN_STATE
        self.pending.append(value)
        return ErrorCode.NONE

    def answer(self, message: Any) -> Any:
        """A request to the coordinator."""
        if isinstance(message, InitProducerIdRequest):
            return self._init(message)
        if isinstance(message, EndTxnRequest):
            code = self._end(message)
            return EndTxnResponse(error_code=code, producer_id=7, producer_epoch=self.epoch)
        if isinstance(message, AddPartitionsToTxnRequest):
            stale = message.v3_and_below_producer_epoch != self.epoch
            code = ErrorCode.PRODUCER_FENCED if stale else self._open("records")
            part = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=code)
            topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=[part])
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])
        if isinstance(message, AddOffsetsToTxnRequest):
            return AddOffsetsToTxnResponse(error_code=self._open("offsets"))
        value = message.topics[0].partitions[0].committed_offset
        code = ErrorCode.NONE
        if value not in self.pending:
            code = ErrorCode(self.write(message.producer_epoch, "offsets", value))
        partition = TxnOffsetCommitResponsePartition(partition_index=0, error_code=code)
        return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="t", partitions=[partition])])

    def _open(self, text: str) -> ErrorCode:
        self.members.add(text)
        self.ended = None
        return ErrorCode.NONE

    def _init(self, message: InitProducerIdRequest) -> InitProducerIdResponse:
        if message.producer_id >= 0 and message.producer_epoch == self.epoch - 1 and not self.members:
            return InitProducerIdResponse(producer_id=7, producer_epoch=self.epoch)
        if message.producer_id >= 0 and message.producer_epoch != self.epoch:
            return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
        self._finish("aborted")
        self.ended = None
        self.epoch += 1
        return InitProducerIdResponse(producer_id=7, producer_epoch=self.epoch)

    def _end(self, message: EndTxnRequest) -> ErrorCode:
        expected = "committed" if message.committed else "aborted"
        retried = self.version >= 2 and message.producer_epoch == self.epoch - 1 and self.ended == expected
        if retried:
            return ErrorCode.NONE
        if message.producer_epoch != self.epoch:
            return ErrorCode.PRODUCER_FENCED
        from_empty = self.version >= 2 and expected == "aborted"
        if not self.members and not from_empty:
            return ErrorCode.NONE if self.version < 2 and self.ended == expected else ErrorCode.INVALID_TXN_STATE
        self._finish(expected)
        self.epoch += self.version >= 2
        return ErrorCode.NONE

    def _finish(self, how: str) -> None:
        if how == "committed":
            self.visible += self.pending
        self.pending, self.members, self.ended = [], set(), how


FATES = ("answered", "request lost", "response lost", "busy", "moved", "abortable")
_REFUSALS = {
    "busy": ErrorCode.CONCURRENT_TRANSACTIONS,
    "moved": ErrorCode.NOT_COORDINATOR,
    "abortable": ErrorCode.TRANSACTION_ABORTABLE,
}


def refusal(message: Any, code: ErrorCode) -> Any:
    response = message.response_class()()
    if isinstance(response, AddPartitionsToTxnResponse):
        part = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=code)
        response.results_by_topic_v3_and_below = [AddPartitionsToTxnTopicResult(name="t", results_by_partition=[part])]
    elif isinstance(response, TxnOffsetCommitResponse):
        partition = TxnOffsetCommitResponsePartition(partition_index=0, error_code=code)
        response.topics = [TxnOffsetCommitResponseTopic(name="t", partitions=[partition])]
    else:
        response.error_code = code
    return response


class World:
    """The machine, driven as the shells drive it."""

    def __init__(self, version: int, fates: list[str]) -> None:
        self.model = CoordinatorModel(version)
        self.fates = fates
        self.machine = TransactionMachine(TransactionSettings("x"))
        self.machine.observe({"transaction.version": version}, can_bump=True)
        self.until_it_works(self.machine.initialize)

    def fate(self) -> str:
        return self.fates.pop() if self.fates else "answered"

    def run(self) -> None:
        while (ask := self.machine.next_request()) is not None:
            fate = self.fate()
            if fate == "request lost":
                continue
            if fate == "abortable" and isinstance(ask.message, EndTxnRequest) and not self.model.members:
                fate = "answered"  # no coordinator says it of an end that was carried out before
            if fate in _REFUSALS:
                self.machine.answered(refusal(ask.message, _REFUSALS[fate]))
            else:
                response = self.model.answer(ask.message)
                if fate == "response lost":
                    continue
                assert self.machine.answered(response) is not Verdict.FATAL, response
            self.machine.raise_failure("run")

    def until_it_works(self, first: Any) -> None:
        with contextlib.suppress(TransactionFailed):
            first()
            self.run()
        while self.machine.state is not State.READY:
            with contextlib.suppress(TransactionFailed):
                self.machine.abort()
                self.run()

    def send(self, value: int) -> None:
        self.machine.register([PARTITION])
        self.run()
        fate = self.fate()
        if fate in ("abortable", "request lost"):
            self.machine.batch_failed(ErrorCode.MESSAGE_TOO_LARGE, None)
            self.machine.raise_failure("send")
        assert self.model.write(self.machine.producer_epoch, "records", value) == ErrorCode.NONE

    def transaction(self, records: list[int], offset: int | None, commit: bool) -> bool:
        """One transaction; True if it was committed."""
        try:
            self.machine.begin()
            for value in records:
                self.send(value)
            if offset is not None:
                self.machine.add_offsets({PARTITION: Committed(offset)}, GroupMetadata("g"))
                self.run()
            if commit:
                self.machine.commit()
                self.run()
                return True
        except TransactionFailed:
            pass
        self.until_it_works(self.machine.abort)
        return False


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.sampled_from([0, 1, 2]),
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), max_size=8),
    st.lists(st.sampled_from(FATES), max_size=60),
)
def test_a_transaction_is_there_whole_or_not_at_all(
    version: int, plan: list[tuple[int, bool, bool]], fates: list[str]
) -> None:
    world = World(version, fates)
    expected: list[int] = []
    number = 0
    for count, with_offset, commit in plan:
        values = list(range(number, number + count))
        offset = number + count if with_offset else None
        number += count + 1
        if world.transaction(values, offset, commit):
            expected += [*values, *([offset] if offset is not None else [])]
    assert world.model.visible == expected
    assert world.model.pending == []


def test_only_a_newer_instance_makes_it_unusable() -> None:
    world = World(2, [])
    world.model.answer(InitProducerIdRequest(transactional_id="x"))
    world.machine.begin()
    world.machine.register([PARTITION])
    world.machine.commit()
    ask = world.machine.next_request()
    assert ask is not None
    assert world.machine.answered(world.model.answer(ask.message)) is Verdict.FATAL
    with pytest.raises(ProducerUnusable):
        world.machine.abort()
