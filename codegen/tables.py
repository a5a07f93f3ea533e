"""The part that kio does not say: the APIs we want, and the fields that are ours."""

from __future__ import annotations

from codegen.model import Field, VersionRange

MODULES = (
    "produce",
    "fetch",
    "list_offsets",
    "metadata",
    "offset_commit",
    "offset_fetch",
    "find_coordinator",
    "join_group",
    "heartbeat",
    "leave_group",
    "sync_group",
    "describe_groups",
    "list_groups",
    "sasl_handshake",
    "api_versions",
    "create_topics",
    "delete_topics",
    "delete_records",
    "init_producer_id",
    "offset_for_leader_epoch",
    "add_partitions_to_txn",
    "add_offsets_to_txn",
    "end_txn",
    "write_txn_markers",
    "txn_offset_commit",
    "describe_acls",
    "create_acls",
    "delete_acls",
    "describe_configs",
    "alter_configs",
    "alter_replica_log_dirs",
    "describe_log_dirs",
    "sasl_authenticate",
    "create_partitions",
    "create_delegation_token",
    "renew_delegation_token",
    "expire_delegation_token",
    "describe_delegation_token",
    "delete_groups",
    "elect_leaders",
    "incremental_alter_configs",
    "alter_partition_reassignments",
    "list_partition_reassignments",
    "offset_delete",
    "describe_client_quotas",
    "alter_client_quotas",
    "describe_user_scram_credentials",
    "alter_user_scram_credentials",
    "describe_quorum",
    "update_features",
    "describe_cluster",
    "describe_producers",
    "unregister_broker",
    "describe_transactions",
    "list_transactions",
    "consumer_group_heartbeat",
    "consumer_group_describe",
    "list_config_resources",
    "describe_topic_partitions",
    "share_group_heartbeat",
    "share_group_describe",
    "share_fetch",
    "share_acknowledge",
    "initialize_share_group_state",
    "read_share_group_state",
    "write_share_group_state",
    "delete_share_group_state",
    "read_share_group_state_summary",
    "describe_share_group_offsets",
    "alter_share_group_offsets",
    "delete_share_group_offsets",
)
"""kio's package names, which are our module names, by API key."""

MAX_ELEMENTS = {"ProduceRequest": "PRODUCE_MAX_ELEMENTS"}
"""Messages that may not have as many elements in their arrays as others."""

RESPONSE_NAMES = {
    ("alter_client_quotas", "EntryData"): "EntryResult",
    ("describe_quorum", "PartitionData"): "QuorumPartition",
    ("describe_quorum", "TopicData"): "QuorumTopic",
}
"""Structs of a response that share a name with another one of the request, by module and name: the name they get."""

TIME_SUFFIX = "_ms"
"""kio turns ``ThrottleTimeMs`` into ``throttle_time`` with a type of its own; every such field of these APIs is in
milliseconds by Kafka's own name (``LastTimestamp`` and its like stay integers in kio)."""

EXTENSIONS = {
    ("write_txn_markers", "WritableTxnMarker"): (
        # The start offset of an administrative abort: its presence marks an administrator (specification of hanging
        # transactions). Apache Kafka skips it.
        Field(name="start_offset", type="int64", versions=VersionRange(1, 2), tag=10000, default="-1"),
        # Only with a start offset: also one that its coordinator knows as live.
        Field(name="ends_live", type="bool", versions=VersionRange(1, 2), tag=10001, default="False"),
    ),
    ("list_transactions", "ListTransactionsRequest"): (
        # The partitions of __transaction_state that a broker believes the receiver leads, and in which epochs: the
        # receiver refuses to answer about fewer. Clients do not say it.
        Field(name="led_partitions", type="int32", versions=VersionRange(0, 2), is_array=True, tag=10000),
        Field(name="leader_epochs", type="int32", versions=VersionRange(0, 2), is_array=True, tag=10001),
    ),
    ("describe_acls", "DescribeAclsRequest"): (
        Field(name="with_settings", type="bool", versions=VersionRange(2, 3), tag=10000, default="False"),
    ),
    ("describe_acls", "DescribeAclsResponse"): (
        # What decides beside the lists, for who may see these and asks: the broker's ``super.users``, as configured,
        # and ``allow.everyone.if.no.acl.found``. Null from a broker that does not tell.
        Field(
            name="super_users",
            type="string",
            versions=VersionRange(2, 3),
            nullable=VersionRange(2, 3),
            tag=10000,
            default="None",
        ),
        Field(name="allow_everyone", type="bool", versions=VersionRange(2, 3), tag=10001, default="False"),
    ),
    ("fetch", "PartitionData"): (
        # Whose the open transactions are that begin in what a replica fetches, so that it knows when it leads: entries
        # of the file ``transactional-ids``. Only in answers to replicas.
        Field(name="transactional_ids", type="bytes", versions=VersionRange(12, 18), tag=10000, default='b""'),
    ),
    ("describe_transactions", "TransactionState"): (
        # The client that last initialised the id or ended a transaction of it; null if the coordinator does not know.
        *(
            Field(
                name=name,
                type="string",
                versions=VersionRange(0, 0),
                nullable=VersionRange(0, 0),
                tag=tag,
                default="None",
            )
            for name, tag in (("client_id", 10000), ("client_host", 10001))
        ),
    ),
    ("describe_groups", "DescribedGroup"): (
        # Member ids that were given out and have not joined yet (KIP-394): what a rebalance waits for beside members.
        *(
            Field(name=name, type=type_, versions=VersionRange(5, 6), is_array=True, tag=tag)
            for name, type_, tag in (
                ("pending_member_ids", "string", 10000),
                ("pending_until_ms", "int64", 10001),
                ("pending_hosts", "string", 10002),
            )
        ),
        # Members that have not joined the rebalance that is under way.
        Field(name="awaited_member_ids", type="string", versions=VersionRange(5, 6), is_array=True, tag=10003),
    ),
    ("describe_cluster", "DescribeClusterBroker"): (
        # The brokers that find it frozen, and since when.
        Field(name="suspected_by", type="int32", versions=VersionRange(0, 2), is_array=True, tag=10000),
        Field(name="suspected_since_ms", type="int64", versions=VersionRange(0, 2), tag=10001, default="-1"),
    ),
    ("describe_producers", "ProducerState"): (
        # What the leader knows of an open transaction beyond Apache Kafka's answer: whose it is, and what it found out
        # about it when it grew old (specification of hanging transactions). Clients pass over both.
        Field(
            name="transactional_id",
            type="string",
            versions=VersionRange(0, 0),
            nullable=VersionRange(0, 0),
            tag=10000,
            default="None",
        ),
        Field(
            name="verdict",
            type="string",
            versions=VersionRange(0, 0),
            nullable=VersionRange(0, 0),
            tag=10001,
            default="None",
        ),
    ),
    ("describe_share_group_offsets", "DescribeShareGroupOffsetsRequest"): (
        # Asks a leader for its own share partitions, instead of a coordinator for the group's start offsets.
        Field(name="led_here", type="bool", versions=VersionRange(0, 1), tag=10000, default="False"),
    ),
    ("describe_share_group_offsets", "DescribeShareGroupOffsetsResponsePartition"): (
        # The window of a share partition as its leader has it in memory, in batches: only in answers to ``led_here``.
        # Times are 0, and the member id is empty, for a batch that no member has locked.
        *(
            Field(name=name, type=type_, versions=VersionRange(0, 1), is_array=True, tag=tag)
            for name, type_, tag in (
                ("first_offsets", "int64", 10000),
                ("last_offsets", "int64", 10001),
                ("delivery_states", "int8", 10002),
                ("delivery_counts", "int16", 10003),
                ("member_ids", "string", 10004),
                ("locked_since_ms", "int64", 10005),
                ("locked_until_ms", "int64", 10006),
            )
        ),
        # Of an answer that was cut.
        Field(name="batches_left_off", type="int32", versions=VersionRange(0, 1), tag=10007, default="0"),
        Field(name="in_flight_records", type="int32", versions=VersionRange(0, 1), tag=10008, default="-1"),
        Field(name="most_in_flight", type="int32", versions=VersionRange(0, 1), tag=10009, default="-1"),
    ),
}
"""Tagged fields of our own, by module and struct; 10000 and up, where Apache Kafka has none."""
