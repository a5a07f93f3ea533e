"""Fields that may differ between Apache Kafka's answer and ours, and why; everything else has to be equal.

Paths are as in `responses.partitions.records`: nested fields, list positions left out. `*` as API stands for all.
"""

from __future__ import annotations

from typing import Final

MAY_DIFFER: Final[dict[tuple[str, str], str]] = {
    ("*", "host"): "the address of the broker",
    ("*", "port"): "the address of the broker",
    ("*", "log_dir"): "the broker's own directory",
    ("*", "total_bytes"): "the disk",
    ("*", "usable_bytes"): "the disk",
    ("Metadata", "controller_id"): "any broker takes what is for the controller: Apache Kafka draws one by lot",
    ("DescribeCluster", "controller_id"): "the same",
    ("*", "error_message"): "wording; whether there is one has to agree",
    ("*", "acknowledge_error_message"): "the same",
    ("*", "batch_index_error_message"): "wording, and the time in it",
    ("*", "log_append_time_ms"): "the time of the append, where the topic asks for it; -1 has to agree",
    ("DescribeTransactions", "transaction_start_time_ms"): "the time of the first partition; -1 has to agree",
    ("DescribeProducers", "last_timestamp"): "the time of a marker",
    ("ApiVersions", "finalized_features_epoch"): "counts changes of metadata",
}
"""Fields whose value is not compared. Of strings and numbers it is compared whether they are there at all."""

LEARNED: Final = frozenset(
    {"topic_id", "member_id", "producer_id", "v3_and_below_producer_id", "session_id", "leader", "cluster_id"}
)
"""Ids that each broker makes for itself: the first pair seen is kept, later ones have to be that pair."""

IDENTITY: Final = (
    "name",
    "topic",
    "topic_id",
    "resource_name",
    "group_id",
    "transactional_id",
    "key",
    "partition_index",
    "partition_id",
    "partition",
    "index",
    "api_key",
    "feature",
    "node_id",
    "broker_id",
    "member_id",
    "entity_type",
    "entity",
)
"""Keys by which elements of a list are sorted before they are compared: brokers do not promise any order."""
