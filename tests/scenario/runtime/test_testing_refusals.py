"""``faults.answer``: an error in the right shape for every API, and nothing done."""

from __future__ import annotations

from importlib import import_module

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.testing import Broker
from oncelog.wire.header import decode_response_header
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.heartbeat import HeartbeatRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.join_group import JoinGroupRequest
from oncelog.wire.messages.leave_group import LeaveGroupRequest
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from oncelog.wire.messages.sync_group import SyncGroupRequest
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.scenario.node.requests import fetch, produce
from tests.scenario.runtime.test_peers_that_misbehave import connect, encoded, read_frame

ERROR = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
TOPIC = MetadataRequestTopic(name="t")
REQUESTS = [
    (produce("t", b"x" * 80), 9),
    (fetch("t", 0), 11),
    (ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition()])]), 7),
    (MetadataRequest(topics=[TOPIC], allow_auto_topic_creation=True), 12),
    (
        OffsetCommitRequest(
            group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition()])]
        ),
        8,
    ),
    (OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])]), 7),
    (FindCoordinatorRequest(key="g"), 3),
    (FindCoordinatorRequest(coordinator_keys=["g"]), 4),
    (JoinGroupRequest(group_id="g"), 7),
    (SyncGroupRequest(group_id="g"), 5),
    (HeartbeatRequest(group_id="g"), 4),
    (LeaveGroupRequest(group_id="g"), 2),
    (InitProducerIdRequest(transactional_id="x"), 4),
    (InitProducerIdRequest(transactional_id=None), 4),
    (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        ),
        3,
    ),
    (AddOffsetsToTxnRequest(transactional_id="x", group_id="g"), 3),
    (EndTxnRequest(transactional_id="x"), 5),
    (
        TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[TxnOffsetCommitRequestPartition()])],
        ),
        3,
    ),
    (CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]), 5),
    (DeleteTopicsRequest(topic_names=["t"]), 5),
    (DeleteGroupsRequest(groups_names=["g"]), 2),
    (ListGroupsRequest(), 4),
]


@pytest.fixture(scope="module")
def broker():
    with Broker() as running:
        yield running


@pytest.mark.parametrize(("request_", "version"), REQUESTS, ids=lambda value: type(value).__name__)
def test_every_api_can_answer_any_error(broker, request_, version):
    name = type(request_).__name__.removesuffix("Request")
    with broker.faults.answer(name, ERROR.name) as fault, connect(broker) as peer:
        peer.sendall(encoded(request_, version, 1))
        answer = read_frame(peer)
        assert fault.hit
        assert errors_in(request_, version, answer) == {ERROR}
        assert not broker._on_loop(lambda: broker._running().node.cluster.image.topics), "nothing was done"


def errors_in(request, version: int, answer: bytes) -> set[int]:
    module = import_module(type(request).__module__)
    _, position = decode_response_header(answer, request.API_KEY, version)
    response = getattr(module, type(request).__name__.replace("Request", "Response")).decode(answer[position:], version)
    return set(_errors(response)) - {0}


def _errors(message):
    for field in getattr(message, "__slots__", ()):
        value = getattr(message, field)
        if field.endswith("error_code"):
            yield value
        for item in value if isinstance(value, list) else ():
            yield from _errors(item)
