"""Every API the broker speaks: the one source of ApiVersions, docs/COMPATIBILITY.md and the version checks."""

from __future__ import annotations

from typing import Final

from oncelog.handlers.api import Api
from oncelog.handlers.api import Operation as Op
from oncelog.handlers.api import ResourceType as Res

APIS: Final = (
    Api(0, "Produce", 3, 13, "produce", Op.WRITE, Res.TOPIC, advertised_min_version=0),
    Api(1, "Fetch", 4, 18, "fetch", Op.READ, Res.TOPIC),
    Api(2, "ListOffsets", 1, 11, "list_offsets", Op.DESCRIBE, Res.TOPIC),
    Api(3, "Metadata", 0, 13, "metadata", Op.DESCRIBE, Res.TOPIC),
    Api(8, "OffsetCommit", 2, 10, "offset_commit", Op.READ, Res.GROUP),
    Api(9, "OffsetFetch", 1, 10, "offset_fetch", Op.DESCRIBE, Res.GROUP),
    Api(10, "FindCoordinator", 0, 6, "find_coordinator", Op.DESCRIBE, Res.GROUP),
    Api(11, "JoinGroup", 0, 9, "join_group", Op.READ, Res.GROUP),
    Api(12, "Heartbeat", 0, 4, "heartbeat", Op.READ, Res.GROUP),
    Api(13, "LeaveGroup", 0, 5, "leave_group", Op.READ, Res.GROUP),
    Api(14, "SyncGroup", 0, 5, "sync_group", Op.READ, Res.GROUP),
    Api(15, "DescribeGroups", 0, 6, "describe_groups", Op.DESCRIBE, Res.GROUP),
    Api(16, "ListGroups", 0, 5, "list_groups", Op.DESCRIBE, Res.CLUSTER),
    Api(17, "SaslHandshake", 0, 1, "sasl_handshake", Op.NONE, Res.NONE),
    Api(18, "ApiVersions", 0, 4, "api_versions", Op.NONE, Res.NONE),
    Api(19, "CreateTopics", 2, 7, "create_topics", Op.CREATE, Res.CLUSTER),
    Api(20, "DeleteTopics", 1, 6, "delete_topics", Op.DELETE, Res.TOPIC),
    Api(21, "DeleteRecords", 0, 2, "delete_records", Op.DELETE, Res.TOPIC),
    Api(22, "InitProducerId", 0, 6, "init_producer_id", Op.IDEMPOTENT_WRITE, Res.CLUSTER),
    Api(23, "OffsetForLeaderEpoch", 2, 4, "offset_for_leader_epoch", Op.DESCRIBE, Res.TOPIC),
    Api(24, "AddPartitionsToTxn", 0, 5, "add_partitions_to_txn", Op.WRITE, Res.TRANSACTIONAL_ID),
    Api(25, "AddOffsetsToTxn", 0, 4, "add_offsets_to_txn", Op.WRITE, Res.TRANSACTIONAL_ID),
    Api(26, "EndTxn", 0, 5, "end_txn", Op.WRITE, Res.TRANSACTIONAL_ID),
    Api(27, "WriteTxnMarkers", 1, 2, "write_txn_markers", Op.CLUSTER_ACTION, Res.CLUSTER),
    Api(28, "TxnOffsetCommit", 0, 5, "txn_offset_commit", Op.READ, Res.GROUP),
    Api(29, "DescribeAcls", 1, 3, "describe_acls", Op.DESCRIBE, Res.CLUSTER),
    Api(30, "CreateAcls", 1, 3, "create_acls", Op.ALTER, Res.CLUSTER),
    Api(31, "DeleteAcls", 1, 3, "delete_acls", Op.ALTER, Res.CLUSTER),
    Api(32, "DescribeConfigs", 1, 4, "describe_configs", Op.DESCRIBE_CONFIGS, Res.TOPIC),
    Api(33, "AlterConfigs", 0, 2, "alter_configs", Op.ALTER_CONFIGS, Res.TOPIC),
    Api(34, "AlterReplicaLogDirs", 1, 2, "alter_replica_log_dirs", Op.ALTER, Res.CLUSTER),
    Api(35, "DescribeLogDirs", 1, 5, "describe_log_dirs", Op.DESCRIBE, Res.CLUSTER),
    Api(36, "SaslAuthenticate", 0, 2, "sasl_authenticate", Op.NONE, Res.NONE),
    Api(37, "CreatePartitions", 0, 3, "create_partitions", Op.ALTER, Res.TOPIC),
    Api(38, "CreateDelegationToken", 1, 3, "create_delegation_token", Op.NONE, Res.NONE),
    Api(39, "RenewDelegationToken", 1, 2, "renew_delegation_token", Op.NONE, Res.NONE),
    Api(40, "ExpireDelegationToken", 1, 2, "expire_delegation_token", Op.NONE, Res.NONE),
    Api(41, "DescribeDelegationToken", 1, 3, "describe_delegation_token", Op.NONE, Res.NONE),
    Api(42, "DeleteGroups", 0, 2, "delete_groups", Op.DELETE, Res.GROUP),
    Api(43, "ElectLeaders", 0, 2, "elect_leaders", Op.ALTER, Res.CLUSTER),
    Api(44, "IncrementalAlterConfigs", 0, 1, "incremental_alter_configs", Op.ALTER_CONFIGS, Res.TOPIC),
    Api(45, "AlterPartitionReassignments", 0, 1, "alter_partition_reassignments", Op.ALTER, Res.CLUSTER),
    Api(46, "ListPartitionReassignments", 0, 0, "list_partition_reassignments", Op.DESCRIBE, Res.CLUSTER),
    Api(47, "OffsetDelete", 0, 0, "offset_delete", Op.DELETE, Res.GROUP),
    Api(48, "DescribeClientQuotas", 0, 1, "describe_client_quotas", Op.DESCRIBE_CONFIGS, Res.CLUSTER),
    Api(49, "AlterClientQuotas", 0, 1, "alter_client_quotas", Op.ALTER_CONFIGS, Res.CLUSTER),
    Api(50, "DescribeUserScramCredentials", 0, 0, "describe_user_scram_credentials", Op.DESCRIBE, Res.CLUSTER),
    Api(51, "AlterUserScramCredentials", 0, 0, "alter_user_scram_credentials", Op.ALTER, Res.CLUSTER),
    Api(57, "UpdateFeatures", 0, 2, "update_features", Op.ALTER, Res.CLUSTER),
    Api(60, "DescribeCluster", 0, 2, "describe_cluster", Op.DESCRIBE, Res.CLUSTER),
    Api(61, "DescribeProducers", 0, 0, "describe_producers", Op.READ, Res.TOPIC),
    Api(64, "UnregisterBroker", 0, 0, "unregister_broker", Op.ALTER, Res.CLUSTER),
    Api(65, "DescribeTransactions", 0, 0, "describe_transactions", Op.DESCRIBE, Res.TRANSACTIONAL_ID),
    Api(66, "ListTransactions", 0, 2, "list_transactions", Op.DESCRIBE, Res.TRANSACTIONAL_ID),
    Api(74, "ListConfigResources", 0, 1, "list_config_resources", Op.DESCRIBE_CONFIGS, Res.CLUSTER),
    Api(75, "DescribeTopicPartitions", 0, 0, "describe_topic_partitions", Op.DESCRIBE, Res.TOPIC),
)

BY_KEY: Final = {api.key: api for api in APIS}
