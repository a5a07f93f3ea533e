"""The registry of all APIs: the source of ApiVersions, docs/COMPATIBILITY.md and the version checks.

Versions that Apache Kafka 4 dropped are in ``legacy_registry``.
"""

from __future__ import annotations

from typing import Final

from oncelog.handlers.api import Api
from oncelog.handlers.api import Operation as Op
from oncelog.handlers.api import ResourceType as Res

APIS: Final = (
    Api(0, "Produce", 3, 13, "produce.handler", Op.WRITE, Res.TOPIC, advertised_min_version=0),
    Api(1, "Fetch", 4, 18, "fetch.handler", Op.READ, Res.TOPIC),
    Api(2, "ListOffsets", 1, 11, "logs.list_offsets", Op.DESCRIBE, Res.TOPIC),
    Api(3, "Metadata", 0, 13, "topics.metadata", Op.DESCRIBE, Res.TOPIC),
    Api(8, "OffsetCommit", 2, 10, "groups.offset_commit", Op.READ, Res.GROUP),
    Api(9, "OffsetFetch", 1, 10, "groups.offset_fetch", Op.DESCRIBE, Res.GROUP),
    Api(10, "FindCoordinator", 0, 6, "groups.find_coordinator", Op.DESCRIBE, Res.GROUP),
    Api(11, "JoinGroup", 0, 9, "groups.membership:join", Op.READ, Res.GROUP),
    Api(12, "Heartbeat", 0, 4, "groups.membership:heartbeat", Op.READ, Res.GROUP),
    Api(13, "LeaveGroup", 0, 5, "groups.membership:leave", Op.READ, Res.GROUP),
    Api(14, "SyncGroup", 0, 5, "groups.membership:sync", Op.READ, Res.GROUP),
    Api(15, "DescribeGroups", 0, 6, "groups.describe:classic_groups", Op.DESCRIBE, Res.GROUP),
    Api(16, "ListGroups", 0, 5, "groups.administration:list_groups", Op.DESCRIBE, Res.CLUSTER),
    Api(17, "SaslHandshake", 0, 1, "access.sasl:handshake", Op.NONE, Res.NONE),
    Api(18, "ApiVersions", 0, 5, "cluster.versions:describe", Op.NONE, Res.NONE),
    Api(19, "CreateTopics", 2, 7, "topics.create_topics", Op.CREATE, Res.CLUSTER),
    Api(20, "DeleteTopics", 1, 6, "topics.delete_topics", Op.DELETE, Res.TOPIC),
    Api(21, "DeleteRecords", 0, 2, "logs.delete_records", Op.DELETE, Res.TOPIC),
    Api(22, "InitProducerId", 0, 6, "transactions.init_producer_id", Op.IDEMPOTENT_WRITE, Res.CLUSTER),
    Api(23, "OffsetForLeaderEpoch", 2, 4, "logs.offset_for_leader_epoch", Op.DESCRIBE, Res.TOPIC),
    Api(24, "AddPartitionsToTxn", 0, 5, "transactions.additions:add_partitions", Op.WRITE, Res.TRANSACTIONAL_ID),
    Api(25, "AddOffsetsToTxn", 0, 4, "transactions.additions:add_offsets", Op.WRITE, Res.TRANSACTIONAL_ID),
    Api(26, "EndTxn", 0, 5, "transactions.end_txn", Op.WRITE, Res.TRANSACTIONAL_ID),
    Api(27, "WriteTxnMarkers", 1, 2, "transactions.write_txn_markers", Op.CLUSTER_ACTION, Res.CLUSTER),
    Api(28, "TxnOffsetCommit", 0, 6, "transactions.txn_offset_commit", Op.READ, Res.GROUP),
    Api(29, "DescribeAcls", 1, 3, "access.acls:describe", Op.DESCRIBE, Res.CLUSTER),
    Api(30, "CreateAcls", 1, 3, "access.acls:create", Op.ALTER, Res.CLUSTER),
    Api(31, "DeleteAcls", 1, 3, "access.acls:delete", Op.ALTER, Res.CLUSTER),
    Api(32, "DescribeConfigs", 1, 4, "configs.describe_configs", Op.DESCRIBE_CONFIGS, Res.TOPIC),
    Api(33, "AlterConfigs", 0, 2, "configs.alteration:alter", Op.ALTER_CONFIGS, Res.TOPIC),
    Api(34, "AlterReplicaLogDirs", 1, 2, "logs.log_dirs:alter", Op.ALTER, Res.CLUSTER),
    Api(35, "DescribeLogDirs", 1, 5, "logs.log_dirs:describe", Op.DESCRIBE, Res.CLUSTER),
    Api(36, "SaslAuthenticate", 0, 2, "access.sasl:authenticate", Op.NONE, Res.NONE),
    Api(37, "CreatePartitions", 0, 3, "topics.create_partitions", Op.ALTER, Res.TOPIC),
    Api(38, "CreateDelegationToken", 1, 3, "access.delegation_tokens:create", Op.NONE, Res.NONE),
    Api(39, "RenewDelegationToken", 1, 2, "access.delegation_tokens:renew", Op.NONE, Res.NONE),
    Api(40, "ExpireDelegationToken", 1, 2, "access.delegation_tokens:expire", Op.NONE, Res.NONE),
    Api(41, "DescribeDelegationToken", 1, 3, "access.delegation_tokens:describe", Op.NONE, Res.NONE),
    Api(42, "DeleteGroups", 0, 3, "groups.administration:delete_groups", Op.DELETE, Res.GROUP),
    Api(43, "ElectLeaders", 0, 2, "topics.elect_leaders", Op.ALTER, Res.CLUSTER),
    Api(44, "IncrementalAlterConfigs", 0, 1, "configs.alteration:alter_incrementally", Op.ALTER_CONFIGS, Res.TOPIC),
    Api(45, "AlterPartitionReassignments", 0, 1, "topics.reassignments:alter", Op.ALTER, Res.CLUSTER),
    Api(46, "ListPartitionReassignments", 0, 0, "topics.reassignments:list_reassignments", Op.DESCRIBE, Res.CLUSTER),
    Api(47, "OffsetDelete", 0, 0, "groups.offset_delete", Op.DELETE, Res.GROUP),
    Api(48, "DescribeClientQuotas", 0, 1, "configs.client_quotas:describe", Op.DESCRIBE_CONFIGS, Res.CLUSTER),
    Api(49, "AlterClientQuotas", 0, 1, "configs.client_quotas:alter", Op.ALTER_CONFIGS, Res.CLUSTER),
    Api(50, "DescribeUserScramCredentials", 0, 0, "access.scram_credentials:describe", Op.DESCRIBE, Res.CLUSTER),
    Api(51, "AlterUserScramCredentials", 0, 0, "access.scram_credentials:alter", Op.ALTER, Res.CLUSTER),
    Api(57, "UpdateFeatures", 0, 2, "cluster.versions:update", Op.ALTER, Res.CLUSTER),
    Api(60, "DescribeCluster", 0, 2, "cluster.brokers:describe", Op.DESCRIBE, Res.CLUSTER),
    Api(61, "DescribeProducers", 0, 0, "transactions.describe_producers", Op.READ, Res.TOPIC),
    Api(64, "UnregisterBroker", 0, 0, "cluster.brokers:unregister", Op.ALTER, Res.CLUSTER),
    Api(
        65, "DescribeTransactions", 0, 0, "transactions.coordinator_queries:describe", Op.DESCRIBE, Res.TRANSACTIONAL_ID
    ),
    Api(
        66,
        "ListTransactions",
        0,
        2,
        "transactions.coordinator_queries:list_transactions",
        Op.DESCRIBE,
        Res.TRANSACTIONAL_ID,
    ),
    Api(68, "ConsumerGroupHeartbeat", 0, 1, "groups.consumer_heartbeat", Op.READ, Res.GROUP),
    Api(69, "ConsumerGroupDescribe", 0, 1, "groups.describe:consumer_groups", Op.DESCRIBE, Res.GROUP),
    Api(74, "ListConfigResources", 0, 1, "configs.list_config_resources", Op.DESCRIBE_CONFIGS, Res.CLUSTER),
    Api(75, "DescribeTopicPartitions", 0, 0, "topics.describe_topic_partitions", Op.DESCRIBE, Res.TOPIC),
    Api(76, "ShareGroupHeartbeat", 1, 1, "groups.share_heartbeat", Op.READ, Res.GROUP),
    Api(77, "ShareGroupDescribe", 1, 1, "groups.describe:share_groups", Op.DESCRIBE, Res.GROUP),
    Api(78, "ShareFetch", 1, 2, "share.fetch", Op.READ, Res.GROUP),
    Api(79, "ShareAcknowledge", 1, 2, "share.acknowledge", Op.READ, Res.GROUP),
    Api(83, "InitializeShareGroupState", 0, 0, "share.state", Op.CLUSTER_ACTION, Res.CLUSTER),
    Api(84, "ReadShareGroupState", 0, 0, "share.state", Op.CLUSTER_ACTION, Res.CLUSTER),
    Api(85, "WriteShareGroupState", 0, 1, "share.state", Op.CLUSTER_ACTION, Res.CLUSTER),
    Api(86, "DeleteShareGroupState", 0, 0, "share.state", Op.CLUSTER_ACTION, Res.CLUSTER),
    Api(87, "ReadShareGroupStateSummary", 0, 1, "share.state", Op.CLUSTER_ACTION, Res.CLUSTER),
    Api(90, "DescribeShareGroupOffsets", 0, 1, "groups.share_offsets", Op.DESCRIBE, Res.GROUP),
    Api(91, "AlterShareGroupOffsets", 0, 0, "groups.share_offset_changes:alter", Op.READ, Res.GROUP),
    Api(92, "DeleteShareGroupOffsets", 0, 0, "groups.share_offset_changes:delete", Op.DELETE, Res.GROUP),
)

BY_KEY: Final = {api.key: api for api in APIS}
