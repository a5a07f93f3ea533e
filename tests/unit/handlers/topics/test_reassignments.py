"""AlterPartitionReassignments and ListPartitionReassignments; what Apache Kafka answers is in the golden corpus."""

from __future__ import annotations

from oncelog.base.errors import ErrorCode
from oncelog.handlers.api import Operation, ResourceType
from oncelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.unit.handlers.cluster_broker import ClusterBroker, Denying

NOTHING = Denying(*((operation, ResourceType.CLUSTER, None) for operation in (Operation.ALTER, Operation.DESCRIBE)))


def test_only_what_is_there_already_passes() -> None:
    broker = ClusterBroker()
    broker.call(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=2, replication_factor=1)]), 7)
    requests = [(0, [1]), (1, [2]), (0, None), (2, [1])]
    partitions = [ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in requests]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=partitions)])
    (topic,) = broker.call(request, 1).responses
    assert [(partition.partition_index, partition.error_code) for partition in topic.partitions] == [
        (0, ErrorCode.NONE),
        (1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert broker.call(ListPartitionReassignmentsRequest(topics=None), 0).topics == []


def test_who_may_not() -> None:
    broker = ClusterBroker()
    for request in (AlterPartitionReassignmentsRequest(topics=[]), ListPartitionReassignmentsRequest()):
        assert broker.call(request, 0, NOTHING).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
