"""What is asked: a request for each API, made so that being allowed changes nothing, or what is put back.

A question is a function of the version and of what the broker has answered before (ids of topics). It names what the
principals of ``world`` may have rights on, and beside it what they never have.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from oncelog.handlers.registry import BY_KEY
from tests.conformance.authorization.world import DOOMED, ELSE, GROUP, HIDDEN, TOPIC, TRANSACTIONAL_ID, UNKNOWN
from tests.peers.clients.sweep.wire import NOWHERE, batch

NO_UUID: Final = bytes(16)
BOGUS: Final = 987_654
"""A producer id that nobody has."""


@dataclass
class Known:
    """What the broker has answered."""

    topic_ids: dict[str, bytes] = field(default_factory=dict)


Question = Callable[[int, Known], Any]


def make(api: str, **fields: Any) -> Any:
    """A message of an API by the name of its class: ``make("fetch.FetchRequest", ...)``."""
    module, _, name = api.partition(".")
    return getattr(importlib.import_module(f"oncelog.wire.messages.{module}"), name)(**fields)


def _named(names: tuple[str, ...], known: Known, since: bool) -> list[dict[str, Any]]:
    """Topics by name, or by id where the version has ids."""
    if not since:
        return [{"name": name} for name in names]
    return [{"topic_id": known.topic_ids.get(name, NOWHERE)} for name in names]


def produce(version: int, known: Known, *, transactional_id: str | None = None, **batch_fields: Any) -> Any:
    by_id = version >= 13
    return make(
        "produce.ProduceRequest",
        acks=-1,
        timeout_ms=5000,
        transactional_id=transactional_id,
        topic_data=[
            make(
                "produce.TopicProduceData",
                **topic,
                partition_data=[make("produce.PartitionProduceData", index=0, records=batch(b"v", **batch_fields))],
            )
            for topic in _named((TOPIC, HIDDEN, UNKNOWN), known, by_id)
        ],
    )


def produce_transactional(version: int, known: Known) -> Any:
    fields = {"producer_id": BOGUS, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    return produce(version, known, transactional_id=TRANSACTIONAL_ID, **fields)


def fetch(version: int, known: Known, replica: int = -1) -> Any:
    partition = make("fetch.FetchPartition", partition=0, partition_max_bytes=1)
    topics = [
        make("fetch.FetchTopic", partitions=[partition], **({"topic": t["name"]} if "name" in t else t))
        for t in _named((TOPIC, HIDDEN, UNKNOWN), known, version >= 13)
    ]
    state = make("fetch.ReplicaState", replica_id=replica) if version >= 15 else None
    old = replica if version < 15 else -1
    return make("fetch.FetchRequest", replica_id=old, replica_state=state, max_bytes=1, topics=topics)


def fetch_as_replica(version: int, known: Known) -> Any:
    """CVE-2018-1288: a consumer that says it is a broker."""
    return fetch(version, known, replica=1)


def list_offsets(_version: int, _known: Known) -> Any:
    return make(
        "list_offsets.ListOffsetsRequest",
        replica_id=-1,
        topics=[
            make(
                "list_offsets.ListOffsetsTopic",
                name=name,
                partitions=[make("list_offsets.ListOffsetsPartition", partition_index=0, timestamp=-2)],
            )
            for name in (TOPIC, HIDDEN, UNKNOWN)
        ],
    )


def _metadata(topics: Any) -> Any:
    return make(
        "metadata.MetadataRequest",
        topics=topics,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )


def metadata(_version: int, _known: Known) -> Any:
    names = (TOPIC, HIDDEN, UNKNOWN)
    return _metadata([make("metadata.MetadataRequestTopic", name=name) for name in names])


def metadata_of_all(version: int, _known: Known) -> Any:
    return _metadata([] if version == 0 else None)


def metadata_by_id(version: int, known: Known) -> Any:
    if version < 12:
        return None
    ids = [known.topic_ids[name] for name in (TOPIC, HIDDEN)]
    return _metadata([make("metadata.MetadataRequestTopic", name=None, topic_id=each) for each in (*ids, NOWHERE)])


def offset_commit(version: int, known: Known) -> Any:
    part = make("offset_commit.OffsetCommitRequestPartition", partition_index=0, committed_offset=1)
    topics = _named((TOPIC, HIDDEN, UNKNOWN), known, version >= 10)
    return make(
        "offset_commit.OffsetCommitRequest",
        group_id=GROUP,
        topics=[make("offset_commit.OffsetCommitRequestTopic", partitions=[part], **topic) for topic in topics],
    )


def _offset_fetch(version: int, known: Known, *, everything: bool) -> Any:
    topics = _named((TOPIC, HIDDEN, UNKNOWN), known, version >= 10)
    if version < 8:
        some = [make("offset_fetch.OffsetFetchRequestTopic", partition_indexes=[0], **topic) for topic in topics]
        return make("offset_fetch.OffsetFetchRequest", group_id=GROUP, topics=None if everything else some)
    of_group = [make("offset_fetch.OffsetFetchRequestTopics", partition_indexes=[0], **topic) for topic in topics]
    groups = [
        make("offset_fetch.OffsetFetchRequestGroup", group_id=group, topics=None if everything else of_group)
        for group in (GROUP, ELSE)
    ]
    return make("offset_fetch.OffsetFetchRequest", groups=groups)


def offset_fetch(version: int, known: Known) -> Any:
    return _offset_fetch(version, known, everything=False)


def offset_fetch_all(version: int, known: Known) -> Any:
    return _offset_fetch(version, known, everything=True) if version >= 2 else None


def _find_coordinator(key: str, key_type: int) -> Question:
    def question(version: int, _known: Known) -> Any:
        if version < 1 and key_type:
            return None
        keys = [key, "nobodys"] if version >= 4 else []
        return make("find_coordinator.FindCoordinatorRequest", key=key, key_type=key_type, coordinator_keys=keys)

    return question


def join_group(_version: int, _known: Known) -> Any:
    """With a session time-out that is refused after the right was asked for."""
    return make(
        "join_group.JoinGroupRequest",
        group_id=GROUP,
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        protocol_type="consumer",
        protocols=[make("join_group.JoinGroupRequestProtocol", name="range", metadata=b"")],
    )


def heartbeat(_version: int, _known: Known) -> Any:
    return make("heartbeat.HeartbeatRequest", group_id=GROUP, generation_id=1, member_id="m")


def leave_group(_version: int, _known: Known) -> Any:
    members = [make("leave_group.MemberIdentity", member_id="m")]
    return make("leave_group.LeaveGroupRequest", group_id=GROUP, member_id="m", members=members)


def sync_group(_version: int, _known: Known) -> Any:
    return make(
        "sync_group.SyncGroupRequest",
        group_id=GROUP,
        generation_id=1,
        member_id="m",
        protocol_type="consumer",
        protocol_name="range",
    )


def describe_groups(_version: int, _known: Known) -> Any:
    return make("describe_groups.DescribeGroupsRequest", groups=[GROUP, "nobodys"], include_authorized_operations=True)


def list_groups(_version: int, _known: Known) -> Any:
    return make("list_groups.ListGroupsRequest")


def create_topics(_version: int, _known: Known) -> Any:
    topics = [
        make("create_topics.CreatableTopic", name=name, num_partitions=1, replication_factor=1)
        for name in (TOPIC, DOOMED, HIDDEN, UNKNOWN)
    ]
    return make("create_topics.CreateTopicsRequest", topics=topics, timeout_ms=10_000, validate_only=True)


def delete_topics(version: int, known: Known) -> Any:
    names = [DOOMED, HIDDEN + "-not", UNKNOWN]
    states = [make("delete_topics.DeleteTopicState", name=name) for name in names]
    return make("delete_topics.DeleteTopicsRequest", topic_names=names, topics=states, timeout_ms=10_000)


def delete_topics_by_id(version: int, known: Known) -> Any:
    if version < 6:
        return None
    ids = (known.topic_ids[DOOMED], NOWHERE)
    topics = [make("delete_topics.DeleteTopicState", name=None, topic_id=each) for each in ids]
    return make("delete_topics.DeleteTopicsRequest", topics=topics, timeout_ms=10_000)


def delete_records(_version: int, _known: Known) -> Any:
    part = make("delete_records.DeleteRecordsPartition", partition_index=0, offset=0)
    topics = [
        make("delete_records.DeleteRecordsTopic", name=name, partitions=[part]) for name in (TOPIC, HIDDEN, UNKNOWN)
    ]
    return make("delete_records.DeleteRecordsRequest", topics=topics, timeout_ms=5000)


def _init_producer_id(name: str | None, *, two_phase: bool = False) -> Question:
    def question(version: int, _known: Known) -> Any:
        if two_phase and version < 6:
            return None
        return make(
            "init_producer_id.InitProducerIdRequest",
            transactional_id=name,
            transaction_timeout_ms=60_000,
            enable2_pc=two_phase,
        )

    return question


def offset_for_leader_epoch(_version: int, _known: Known) -> Any:
    part = make("offset_for_leader_epoch.OffsetForLeaderPartition", partition=0, leader_epoch=0)
    topics = [
        make("offset_for_leader_epoch.OffsetForLeaderTopic", topic=name, partitions=[part])
        for name in (TOPIC, HIDDEN, UNKNOWN)
    ]
    return make("offset_for_leader_epoch.OffsetForLeaderEpochRequest", replica_id=-1, topics=topics)


def add_partitions_to_txn(version: int, _known: Known) -> Any:
    topics = [
        make("add_partitions_to_txn.AddPartitionsToTxnTopic", name=name, partitions=[0]) for name in (TOPIC, HIDDEN)
    ]
    identity = {"producer_id": BOGUS, "producer_epoch": 0, "topics": topics}
    if version < 4:
        old = {f"v3_and_below_{key}": value for key, value in identity.items()}
        return make(
            "add_partitions_to_txn.AddPartitionsToTxnRequest",
            v3_and_below_transactional_id=TRANSACTIONAL_ID,
            **old,
        )
    transaction = make(
        "add_partitions_to_txn.AddPartitionsToTxnTransaction",
        transactional_id=TRANSACTIONAL_ID,
        verify_only=True,
        **identity,
    )
    return make("add_partitions_to_txn.AddPartitionsToTxnRequest", transactions=[transaction])


def add_one_partition_to_txn(version: int, known: Known) -> Any:
    if version >= 4:
        return None
    asked = add_partitions_to_txn(version, known)
    del asked.v3_and_below_topics[1:]
    return asked


def add_offsets_to_txn(_version: int, _known: Known) -> Any:
    return make(
        "add_offsets_to_txn.AddOffsetsToTxnRequest",
        transactional_id=TRANSACTIONAL_ID,
        producer_id=BOGUS,
        producer_epoch=0,
        group_id=GROUP,
    )


def end_txn(_version: int, _known: Known) -> Any:
    return make(
        "end_txn.EndTxnRequest",
        transactional_id=TRANSACTIONAL_ID,
        producer_id=BOGUS,
        producer_epoch=0,
        committed=True,
    )


def write_txn_markers(_version: int, _known: Known) -> Any:
    topics = [make("write_txn_markers.WritableTxnMarkerTopic", name=TOPIC, partition_indexes=[77])]
    marker = make("write_txn_markers.WritableTxnMarker", producer_id=BOGUS, producer_epoch=0, topics=topics)
    return make("write_txn_markers.WriteTxnMarkersRequest", markers=[marker])


def txn_offset_commit(_version: int, _known: Known) -> Any:
    part = make("txn_offset_commit.TxnOffsetCommitRequestPartition", partition_index=0, committed_offset=1)
    topics = [
        make("txn_offset_commit.TxnOffsetCommitRequestTopic", name=name, partitions=[part])
        for name in (TOPIC, HIDDEN, UNKNOWN)
    ]
    return make(
        "txn_offset_commit.TxnOffsetCommitRequest",
        transactional_id=TRANSACTIONAL_ID,
        group_id=GROUP,
        producer_id=BOGUS,
        producer_epoch=0,
        topics=topics,
    )


def describe_configs(_version: int, _known: Known) -> Any:
    asked = ((2, TOPIC), (2, HIDDEN), (2, UNKNOWN), (4, "1"), (4, ""), (8, "1"), (16, "m"), (32, GROUP), (32, ELSE))
    resources = [
        make(
            "describe_configs.DescribeConfigsResource",
            resource_type=kind,
            resource_name=name,
            configuration_keys=["cleanup.policy", "consumer.session.timeout.ms"],
        )
        for kind, name in asked
    ]
    return make("describe_configs.DescribeConfigsRequest", resources=resources)


def _altered(module: str, name: str) -> Question:
    def question(_version: int, _known: Known) -> Any:
        kinds = ((2, TOPIC, "retention.ms"), (2, HIDDEN, "retention.ms"), (2, UNKNOWN, "retention.ms"))
        others = ((4, "", "log.retention.ms"), (16, "m", "interval.ms"), (32, GROUP, "consumer.session.timeout.ms"))
        resources = [
            make(
                f"{module}.AlterConfigsResource",
                resource_type=kind,
                resource_name=resource,
                configs=[make(f"{module}.AlterableConfig", name=key, value="45000")],
            )
            for kind, resource, key in (*kinds, *(others if module.startswith("incremental") else ()))
        ]
        return make(f"{module}.{name}", resources=resources, validate_only=True)

    return question


def describe_log_dirs(_version: int, _known: Known) -> Any:
    topics = [make("describe_log_dirs.DescribableLogDirTopic", topic=HIDDEN, partitions=[0])]
    return make("describe_log_dirs.DescribeLogDirsRequest", topics=topics)


def create_partitions(_version: int, _known: Known) -> Any:
    topics = [
        make("create_partitions.CreatePartitionsTopic", name=name, count=2, assignments=None)
        for name in (TOPIC, HIDDEN, UNKNOWN)
    ]
    return make("create_partitions.CreatePartitionsRequest", topics=topics, timeout_ms=10_000, validate_only=True)


def delete_groups(_version: int, _known: Known) -> Any:
    return make("delete_groups.DeleteGroupsRequest", groups_names=[GROUP, "nobodys"])


def elect_leaders(_version: int, _known: Known) -> Any:
    topics = [make("elect_leaders.TopicPartitions", topic=name, partitions=[0]) for name in (TOPIC, UNKNOWN)]
    return make("elect_leaders.ElectLeadersRequest", topic_partitions=topics, timeout_ms=10_000)


def alter_partition_reassignments(_version: int, _known: Known) -> Any:
    part = make("alter_partition_reassignments.ReassignablePartition", partition_index=0, replicas=None)
    topics = [
        make("alter_partition_reassignments.ReassignableTopic", name=name, partitions=[part])
        for name in (TOPIC, UNKNOWN)
    ]
    module = "alter_partition_reassignments.AlterPartitionReassignmentsRequest"
    return make(module, topics=topics, timeout_ms=10_000)


def list_partition_reassignments(_version: int, _known: Known) -> Any:
    return make("list_partition_reassignments.ListPartitionReassignmentsRequest", topics=None, timeout_ms=10_000)


def offset_delete(_version: int, _known: Known) -> Any:
    part = make("offset_delete.OffsetDeleteRequestPartition", partition_index=5)
    topics = [
        make("offset_delete.OffsetDeleteRequestTopic", name=name, partitions=[part])
        for name in (TOPIC, HIDDEN, UNKNOWN)
    ]
    return make("offset_delete.OffsetDeleteRequest", group_id=GROUP, topics=topics)


def update_features(_version: int, _known: Known) -> Any:
    updates = [make("update_features.FeatureUpdateKey", feature="nonsense", max_version_level=1)]
    return make("update_features.UpdateFeaturesRequest", feature_updates=updates, validate_only=True)


def describe_cluster(_version: int, _known: Known) -> Any:
    return make("describe_cluster.DescribeClusterRequest", include_cluster_authorized_operations=True)


def describe_producers(_version: int, _known: Known) -> Any:
    topics = [
        make("describe_producers.TopicRequest", name=name, partition_indexes=[0])
        for name in (TOPIC, HIDDEN, UNKNOWN, "bad name")
    ]
    return make("describe_producers.DescribeProducersRequest", topics=topics)


def describe_transactions(_version: int, _known: Known) -> Any:
    ids = [TRANSACTIONAL_ID, "open", "nobodys"]
    return make("describe_transactions.DescribeTransactionsRequest", transactional_ids=ids)


def list_transactions(_version: int, _known: Known) -> Any:
    return make("list_transactions.ListTransactionsRequest")


def list_config_resources(_version: int, _known: Known) -> Any:
    return make("list_config_resources.ListConfigResourcesRequest", resource_types=[])


def _describe_topic_partitions(*names: str) -> Question:
    def question(_version: int, _known: Known) -> Any:
        topics = [make("describe_topic_partitions.TopicRequest", name=name) for name in names]
        return make("describe_topic_partitions.DescribeTopicPartitionsRequest", topics=topics)

    return question


def _acl(kind: int = 2, name: str = "acl", pattern: int = 3, operation: int = 3, permission: int = 3) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": "User:somebody",
        "host": "*",
        "operation": operation,
        "permission_type": permission,
    }


def create_acls(_version: int, _known: Known) -> Any:
    """The whole kinds of nonsense are in ``script.nonsense``."""
    asked = (_acl(), _acl(4, "other"), _acl(name=""), _acl(operation=12))
    return make(
        "create_acls.CreateAclsRequest", creations=[make("create_acls.AclCreation", **fields) for fields in asked]
    )


def acl_filter(kind: int = 2, name: str | None = "acl", pattern: int = 3, operation: int = 1) -> dict[str, Any]:
    """A filter for DescribeAcls and DeleteAcls."""
    return {
        "resource_type_filter": kind,
        "resource_name_filter": name,
        "pattern_type_filter": pattern,
        "principal_filter": None,
        "host_filter": None,
        "operation": operation,
        "permission_type": 1,
    }


def describe_acls(_version: int, _known: Known) -> Any:
    return make("describe_acls.DescribeAclsRequest", **acl_filter(name=TOPIC))


def delete_acls(_version: int, _known: Known) -> Any:
    filters = [acl_filter(), acl_filter(operation=3)]
    return make(
        "delete_acls.DeleteAclsRequest", filters=[make("delete_acls.DeleteAclsFilter", **each) for each in filters]
    )


def api_versions(_version: int, _known: Known) -> Any:
    return make("api_versions.ApiVersionsRequest", client_software_name="c", client_software_version="1")


def describe_client_quotas(_version: int, _known: Known) -> Any:
    return make("describe_client_quotas.DescribeClientQuotasRequest", components=[], strict=False)


def alter_client_quotas(_version: int, _known: Known) -> Any:
    entity = [make("alter_client_quotas.EntityData", entity_type="user", entity_name="somebody")]
    ops = [make("alter_client_quotas.OpData", key="producer_byte_rate", value=1000.0)]
    entry = make("alter_client_quotas.EntryData", entity=entity, ops=ops)
    return make("alter_client_quotas.AlterClientQuotasRequest", entries=[entry], validate_only=True)


def describe_user_scram_credentials(_version: int, _known: Known) -> Any:
    """Of one user: unauthorised and about all, Apache Kafka never answers."""
    users = [make("describe_user_scram_credentials.UserName", name="somebody")]
    return make("describe_user_scram_credentials.DescribeUserScramCredentialsRequest", users=users)


def alter_user_scram_credentials(_version: int, _known: Known) -> Any:
    deletion = make("alter_user_scram_credentials.ScramCredentialDeletion", name="somebody", mechanism=1)
    return make("alter_user_scram_credentials.AlterUserScramCredentialsRequest", deletions=[deletion])


QUESTIONS: Final[Mapping[str, Question]] = {
    "api-versions": api_versions,
    "delete-groups": delete_groups,
    "init-producer-id": _init_producer_id(None),
    "init-transactional-id": _init_producer_id(TRANSACTIONAL_ID),
    "init-two-phase": _init_producer_id(TRANSACTIONAL_ID, two_phase=True),
    "produce": produce,
    "produce-transactional": produce_transactional,
    "fetch": fetch,
    "fetch-as-replica": fetch_as_replica,
    "list-offsets": list_offsets,
    "metadata": metadata,
    "metadata-of-all": metadata_of_all,
    "metadata-by-id": metadata_by_id,
    "offset-commit": offset_commit,
    "offset-fetch": offset_fetch,
    "offset-fetch-all": offset_fetch_all,
    "find-group-coordinator": _find_coordinator(GROUP, 0),
    "find-transaction-coordinator": _find_coordinator(TRANSACTIONAL_ID, 1),
    "join-group": join_group,
    "heartbeat": heartbeat,
    "leave-group": leave_group,
    "sync-group": sync_group,
    "describe-groups": describe_groups,
    "list-groups": list_groups,
    "create-topics": create_topics,
    "delete-topics": delete_topics,
    "delete-topics-by-id": delete_topics_by_id,
    "delete-records": delete_records,
    "offset-for-leader-epoch": offset_for_leader_epoch,
    "add-partitions-to-txn": add_partitions_to_txn,
    "add-one-partition-to-txn": add_one_partition_to_txn,
    "add-offsets-to-txn": add_offsets_to_txn,
    "end-txn": end_txn,
    "write-txn-markers": write_txn_markers,
    "txn-offset-commit": txn_offset_commit,
    "describe-acls": describe_acls,
    "create-acls": create_acls,
    "delete-acls": delete_acls,
    "describe-configs": describe_configs,
    "alter-configs": _altered("alter_configs", "AlterConfigsRequest"),
    "incremental-alter-configs": _altered("incremental_alter_configs", "IncrementalAlterConfigsRequest"),
    "describe-log-dirs": describe_log_dirs,
    "create-partitions": create_partitions,
    "elect-leaders": elect_leaders,
    "alter-partition-reassignments": alter_partition_reassignments,
    "list-partition-reassignments": list_partition_reassignments,
    "offset-delete": offset_delete,
    "update-features": update_features,
    "describe-cluster": describe_cluster,
    "describe-producers": describe_producers,
    "describe-transactions": describe_transactions,
    "list-transactions": list_transactions,
    "list-config-resources": list_config_resources,
    "describe-topic-partitions": _describe_topic_partitions(TOPIC, HIDDEN, UNKNOWN),
    "describe-client-quotas": describe_client_quotas,
    "alter-client-quotas": alter_client_quotas,
    "describe-user-scram-credentials": describe_user_scram_credentials,
    "alter-user-scram-credentials": alter_user_scram_credentials,
    "describe-all-topic-partitions": _describe_topic_partitions(),
}
"""In the order in which they are asked."""


def versions_of(question: Question, known: Known) -> list[int]:
    """The versions in which a question can be asked, by the registry."""
    sample = next(found for found in (question(version, known) for version in range(_MOST_VERSIONS)) if found)
    api = BY_KEY[sample.API_KEY]
    return [v for v in range(api.min_version, api.max_version + 1) if question(v, known) is not None]


_MOST_VERSIONS: Final = 20
"""More than any API has."""
