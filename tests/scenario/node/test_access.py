"""A node that decides by access control lists: from when a right counts, what a lost one stops, what is logged."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.kinds import ConfigError
from oncelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from oncelog.wire.messages.describe_acls import DescribeAclsRequest
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.list_transactions import ListTransactionsRequest
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.peers.clients.sweep.wire import batch
from tests.scenario.node.driver import Driver, Peer

ADMIN = "User:admin"
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CONFIG = {
    "authorizer.class.name": STANDARD,
    "super.users": ADMIN,
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
TOPIC, TRANSACTIONAL_ID = 2, 5
READ, WRITE, ALL = 3, 4, 2
ALTER, CLUSTER_ACTION = 7, 9
DENY, ALLOW = 2, 3


def entry(
    operation: int, kind: int = TOPIC, name: str = "t", who: str = "User:app", permission: int = ALLOW
) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=3,
        principal=who,
        host="*",
        operation=operation,
        permission_type=permission,
    )


class Scenario:
    """A node with a topic, an administrator and an application."""

    def __init__(self) -> None:
        self.driver = Driver(CONFIG)
        self.admin = self.driver.connect(principal=ADMIN)
        self.app = self.driver.connect(principal="User:app")
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        self.admin.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)

    def grant(self, *creations: AclCreation) -> None:
        created = self.admin.ask(CreateAclsRequest(creations=list(creations)), 3)
        assert [result.error_code for result in created.results] == [0] * len(creations)

    def revoke(self, **fields: Any) -> None:
        expected = DeleteAclsFilter(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter="User:app",
            host_filter=None,
            operation=fields.get("operation", 1),
            permission_type=1,
        )
        assert self.admin.ask(DeleteAclsRequest(filters=[expected]), 3).filter_results[0].matching_acls

    def produce(self, peer: Peer | None = None, transactional_id: str | None = None, **fields: Any) -> int:
        data = PartitionProduceData(index=0, records=batch(b"v", transactional=transactional_id is not None, **fields))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            transactional_id=transactional_id,
            topic_data=[TopicProduceData(name="t", partition_data=[data])],
        )
        code: int = (peer or self.app).ask(request, 9).responses[0].partition_responses[0].error_code
        return code


def fetch(replica_id: int = -1, max_wait_ms: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, partition_max_bytes=1000)
    topic = FetchTopic(topic="t", partitions=[partition])
    return FetchRequest(replica_id=replica_id, max_wait_ms=max_wait_ms, min_bytes=1, topics=[topic])


def test_a_right_counts_from_the_answer_on_and_not_before_it_is_committed() -> None:
    scenario = Scenario()
    assert scenario.produce() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    scenario.driver.hold_metadata = True
    scenario.admin.send(CreateAclsRequest(creations=[entry(WRITE)]), 3)
    assert not scenario.admin.responses, "it is answered when it is committed"
    assert scenario.produce() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    scenario.driver.release()
    assert scenario.admin.responses
    assert scenario.produce() == ErrorCode.NONE


def test_a_right_that_is_lost_in_the_middle_of_a_transaction() -> None:
    """Records that were written stay in the transaction; it can be ended as long as the right on the id is there."""
    scenario = Scenario()
    scenario.grant(entry(WRITE), entry(WRITE, TRANSACTIONAL_ID, "x"))
    given = scenario.app.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 4)
    identity = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        **{f"v3_and_below_{key}": value for key, value in identity.items()},
    )
    assert scenario.app.ask(added, 3).results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    assert scenario.produce(transactional_id="x", base_sequence=0, **identity) == ErrorCode.NONE
    scenario.grant(entry(WRITE, permission=DENY))
    assert scenario.produce(transactional_id="x", base_sequence=1, **identity) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    scenario.grant(entry(ALL, TRANSACTIONAL_ID, "x", permission=DENY))
    end = EndTxnRequest(transactional_id="x", committed=True, **identity)
    assert scenario.app.ask(end, 3).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert scenario.produce(transactional_id="x", base_sequence=1, **identity) == 53
    scenario.revoke(operation=ALL)
    assert scenario.app.ask(end, 3).error_code == ErrorCode.NONE


def test_a_fetch_that_waits_is_not_asked_again() -> None:
    """As in Apache Kafka: the next one is refused."""
    scenario = Scenario()
    scenario.grant(entry(READ))
    scenario.app.send(fetch(max_wait_ms=10_000), 12)
    scenario.revoke()
    scenario.produce(scenario.admin)
    scenario.driver.advance(10_000)
    assert scenario.app.responses.popleft().responses[0].partitions[0].error_code == ErrorCode.NONE
    answer = scenario.app.ask(fetch(), 12)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_consumer_that_says_it_is_a_replica_gets_nothing() -> None:
    """CVE-2018-1288: no right on the topic helps, only that of a broker."""
    scenario = Scenario()
    scenario.grant(entry(ALL))
    scenario.produce(scenario.admin)
    answer = scenario.app.ask(fetch(replica_id=1), 12)
    partition = answer.responses[0].partitions[0]
    assert (answer.error_code, partition.error_code) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert not partition.records
    scenario.grant(entry(9, 4, "kafka-cluster", who="User:spy"))
    spy = scenario.driver.connect(principal="User:spy")
    assert spy.ask(fetch(), 12).responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_brokers_ask_each_other_by_the_right_of_a_broker() -> None:
    """ClusterAction alone shows no transactional id to a client; a broker needs nothing else for what it asks."""
    scenario = Scenario()
    scenario.grant(entry(WRITE, TRANSACTIONAL_ID, "x"), entry(9, 4, "kafka-cluster", who="User:broker"))
    given = scenario.app.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 4)
    assert given.error_code == 0
    broker = scenario.driver.connect(principal="User:broker")
    for client_id, sees in (("broker-1-markers", True), ("broker-7-markers", False), ("somebody", False)):
        broker.client_id = client_id
        listed = broker.ask(ListTransactionsRequest(), 0)
        assert bool(listed.transaction_states) is sees
        described = broker.ask(DescribeTransactionsRequest(transactional_ids=["x"]), 0).transaction_states[0]
        assert described.error_code == (0 if sees else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    scenario.app.client_id = "broker-1-markers"
    scenario.revoke()
    assert not scenario.app.ask(ListTransactionsRequest(), 0).transaction_states, "a client id proves nothing"


@pytest.mark.parametrize(
    ("operation", "client_id", "outcomes"),
    [
        (ALTER, "admin", ["NONE"]),
        (ALTER, "broker-1-markers", ["NONE"]),
        (CLUSTER_ACTION, "admin", ["NONE"]),
        (CLUSTER_ACTION, "broker-1-markers", []),
    ],
)
def test_only_a_broker_with_the_right_of_one_ends_a_transaction_unseen(
    operation: int, client_id: str, outcomes: list[str]
) -> None:
    scenario = Scenario()
    scenario.produce(scenario.admin)
    scenario.grant(entry(operation, 4, "kafka-cluster"))
    scenario.app.client_id = client_id
    marker = WritableTxnMarker(
        producer_id=1, topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])], coordinator_epoch=0
    )
    answer = scenario.app.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.NONE
    assert [record.outcome for record in scenario.driver.audited] == outcomes


def test_writing_to_some_topic_permits_idempotence() -> None:
    scenario = Scenario()
    request = InitProducerIdRequest(transactional_id=None)
    assert scenario.app.ask(request, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    scenario.grant(entry(WRITE, name="no-such-topic"))
    assert scenario.app.ask(request, 4).error_code == ErrorCode.NONE
    scenario.grant(entry(WRITE, name="*", permission=DENY))
    assert scenario.app.ask(request, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_lists_survive_a_restart_and_are_one_commit_after_the_other() -> None:
    scenario = Scenario()
    scenario.grant(*(entry(READ, name=f"topic-{number}") for number in range(2_500)))
    scenario.driver.crash_and_restart(1)
    admin = scenario.driver.connect(principal=ADMIN)
    everything = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    assert len(admin.ask(everything, 3).resources) == 2_500
    too_many = CreateAclsRequest(creations=[entry(READ)] * 10_001)
    admin.send(too_many, 3)
    scenario.driver.advance(1000)
    results = admin.responses.popleft().results
    assert {result.error_code for result in results} == {ErrorCode.POLICY_VIOLATION}


def test_denials_and_changes_are_written_down() -> None:
    scenario = Scenario()
    scenario.produce()
    scenario.grant(entry(WRITE))
    scenario.produce()
    assert scenario.driver.access_lines == [
        "Principal = User:app is Denied operation = WRITE from host = 127.0.0.1 on resource = Topic:LITERAL:t "
        "for request = Produce with resourceRefCount = 1 based on rule DefaultDeny",
        "Created ACL StandardAcl(resourceType=TOPIC, resourceName=t, patternType=LITERAL, principal=User:app, host=*, "
        "operation=WRITE, permissionType=ALLOW) by principal = User:admin from host = 127.0.0.1",
    ]
    log = scenario.driver.node.access.log
    assert log is not None
    assert (sum(log.denied.values()), log.changes) == (1, {"Created": 1})


@pytest.mark.parametrize(
    "name", [STANDARD, "kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer"]
)
def test_the_authorizer_has_three_names(name: str) -> None:
    assert BrokerConfig({"authorizer.class.name": name}).get("authorizer.class.name") == name


def test_another_authorizer_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match="oncelog loads no Java classes; set"):
        BrokerConfig({"authorizer.class.name": "com.example.OurAuthorizer"})
    with pytest.raises(ConfigError, match="principalType:principalName but got admin"):
        BrokerConfig({"super.users": "User:a;admin"})


@pytest.mark.parametrize("version", range(2, 8))
def test_an_error_of_the_group_is_repeated_at_the_partitions_of_offset_fetch(version: int) -> None:
    """aiokafka looks nowhere else."""
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    answer = Scenario().app.ask(OffsetFetchRequest(group_id="g", topics=topics), version)
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    codes = [partition.error_code for topic in answer.topics for partition in topic.partitions]
    assert codes == [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 2
