"""Answers of fake brokers to producers and to members of groups."""

from __future__ import annotations

from typing import Any

from oncelog.client.machine.versions import Versions
from oncelog.client.programs.steps import Program
from oncelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from oncelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.unit.client.programs.fake_brokers import FakeBrokers, FakeLink, Runner

COORDINATOR = 2


def coordinated(brokers: FakeBrokers) -> None:
    """Let every group and transactional id have one coordinator."""

    def find(_: int, message: FindCoordinatorRequest) -> FindCoordinatorResponse:
        answers = [Coordinator(key=key, node_id=COORDINATOR) for key in message.coordinator_keys]
        return FindCoordinatorResponse(coordinators=answers)

    brokers.answers[FindCoordinatorRequest] = find


class Log:
    """The answers to a producer: batches appended, by partition, and codes to refuse the next ones with."""

    def __init__(self, brokers: FakeBrokers) -> None:
        self.appended: dict[int, list[bytes]] = {}
        self.codes: list[int] = []
        self.ended: list[bool] = []
        self.end_codes: list[int] = []
        brokers.leaders["t"] = {0: 1, 1: 3}
        coordinated(brokers)
        brokers.answers |= {
            ProduceRequest: self._produce,
            InitProducerIdRequest: lambda *_: InitProducerIdResponse(producer_id=7, producer_epoch=0),
            AddPartitionsToTxnRequest: lambda *_: AddPartitionsToTxnResponse(),
            EndTxnRequest: self._end,
        }

    def _end(self, _: int, message: EndTxnRequest) -> EndTxnResponse:
        code = self.end_codes.pop(0) if self.end_codes else 0
        if not code:
            self.ended.append(message.committed)
        return EndTxnResponse(error_code=code, producer_id=7, producer_epoch=message.producer_epoch + 1)

    def _produce(self, _: int, message: ProduceRequest) -> ProduceResponse:
        answers: list[TopicProduceResponse] = []
        for topic in message.topic_data:
            partitions: list[Any] = []
            for data in topic.partition_data:
                code = self.codes.pop(0) if self.codes else 0
                log = self.appended.setdefault(data.index, [])
                partitions.append(PartitionProduceResponse(index=data.index, error_code=code, base_offset=len(log)))
                if not code:
                    log.append(b"".join(bytes(part) for part in _parts(data.records)))
            answers.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions)
            )
        return ProduceResponse(responses=answers)


def _parts(records: Any) -> list[Any]:
    return records if isinstance(records, list) else [records]


def with_feature(runner: Runner, level: int) -> None:
    """Let the brokers have a level of ``transaction.version``."""

    def program() -> Program[None]:
        for broker in ("any", 1, 2, 3):
            link = yield from runner.cluster.link(broker)  # type: ignore[arg-type]  # as it is
            assert isinstance(link, FakeLink)
            link.versions = Versions(link.versions.ranges, {"transaction.version": level})

    runner.run(program())
