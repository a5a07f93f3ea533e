"""The questions: a request for each API, made so that being allowed changes nothing, or what is put back.

A question is a function of the version and of what the broker has answered before (ids of topics). It names what the
principals of ``world`` may have rights on, and beside it what they never have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.handlers.registry import BY_KEY
from tests.conformance.authorization.questions.asking import Known, Question
from tests.conformance.authorization.questions.cluster import (
    alter_client_quotas,
    alter_user_scram_credentials,
    altered,
    api_versions,
    create_acls,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_user_scram_credentials,
    list_config_resources,
    unregister_broker,
    update_features,
)
from tests.conformance.authorization.questions.groups import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_fetch_all,
    sync_group,
)
from tests.conformance.authorization.questions.records import (
    delete_records,
    fetch,
    fetch_as_replica,
    list_offsets,
    offset_for_leader_epoch,
    produce,
    produce_transactional,
)
from tests.conformance.authorization.questions.shares import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    find_share_coordinator,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    share_group_state,
)
from tests.conformance.authorization.questions.topic_ids import (
    delete_topics_without_id,
    fetch_by_id,
    fetch_without_id,
    metadata_by_any_id,
    metadata_without_id,
    offset_commit_by_id,
    offset_fetch_by_id,
    produce_by_id,
)
from tests.conformance.authorization.questions.topics import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    create_partitions,
    create_topics,
    delete_topics,
    delete_topics_by_id,
    describe_log_dirs,
    describe_topic_partitions,
    elect_leaders,
    list_partition_reassignments,
    metadata,
    metadata_by_id,
    metadata_of_all,
)
from tests.conformance.authorization.questions.transactions import (
    add_offsets_to_txn,
    add_one_partition_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)
from tests.conformance.authorization.world import GROUP, HIDDEN, TOPIC, TRANSACTIONAL_ID, UNKNOWN

QUESTIONS: Final[Mapping[str, Question]] = {
    "api-versions": api_versions,
    "delete-groups": delete_groups,
    "init-producer-id": init_producer_id(None),
    "init-transactional-id": init_producer_id(TRANSACTIONAL_ID),
    "init-two-phase": init_producer_id(TRANSACTIONAL_ID, two_phase=True),
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
    "find-group-coordinator": find_coordinator(GROUP, 0),
    "find-transaction-coordinator": find_coordinator(TRANSACTIONAL_ID, 1),
    "join-group": join_group,
    "heartbeat": heartbeat,
    "leave-group": leave_group,
    "sync-group": sync_group,
    "describe-groups": describe_groups,
    "list-groups": list_groups,
    "consumer-group-describe": consumer_group_describe,
    "consumer-group-heartbeat": consumer_group_heartbeat(TOPIC),
    "consumer-group-heartbeat-hidden": consumer_group_heartbeat(TOPIC, HIDDEN),
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
    "alter-configs": altered("alter_configs", "AlterConfigsRequest"),
    "incremental-alter-configs": altered("incremental_alter_configs", "IncrementalAlterConfigsRequest"),
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
    "describe-topic-partitions": describe_topic_partitions(TOPIC, HIDDEN, UNKNOWN),
    "describe-client-quotas": describe_client_quotas,
    "alter-client-quotas": alter_client_quotas,
    "describe-user-scram-credentials": describe_user_scram_credentials,
    "alter-user-scram-credentials": alter_user_scram_credentials,
    "describe-all-topic-partitions": describe_topic_partitions(),
    "alter-replica-log-dirs": alter_replica_log_dirs,
    "ids-produce": produce_by_id,
    "ids-fetch": fetch_by_id,
    "ids-fetch-none": fetch_without_id,
    "ids-metadata": metadata_by_any_id,
    "ids-metadata-none": metadata_without_id,
    "ids-delete-topics": delete_topics_without_id,
    "ids-offset-commit": offset_commit_by_id,
    "ids-offset-fetch": offset_fetch_by_id,
    "find-share-coordinator": find_share_coordinator,
    "share-group-heartbeat": share_group_heartbeat(TOPIC),
    "share-group-heartbeat-hidden": share_group_heartbeat(TOPIC, HIDDEN),
    "share-group-describe": share_group_describe,
    "share-fetch": share_fetch(TOPIC),
    "share-fetch-hidden": share_fetch(TOPIC, HIDDEN),
    "share-acknowledge": share_acknowledge,
    "share-group-offsets": describe_share_group_offsets(TOPIC, HIDDEN, UNKNOWN),
    "share-group-offsets-all": describe_share_group_offsets(),
    "alter-share-group-offsets": alter_share_group_offsets,
    "delete-share-group-offsets": delete_share_group_offsets,
    "initialize-share-group-state": share_group_state(
        "initialize_share_group_state", "InitializeShareGroupStateRequest", "InitializeStateData"
    ),
    "read-share-group-state": share_group_state(
        "read_share_group_state", "ReadShareGroupStateRequest", "ReadStateData"
    ),
    "write-share-group-state": share_group_state(
        "write_share_group_state", "WriteShareGroupStateRequest", "WriteStateData"
    ),
    "delete-share-group-state": share_group_state(
        "delete_share_group_state", "DeleteShareGroupStateRequest", "DeleteStateData"
    ),
    "read-share-group-state-summary": share_group_state(
        "read_share_group_state_summary", "ReadShareGroupStateSummaryRequest", "ReadStateSummaryData"
    ),
    "unregister-broker": unregister_broker,
}
"""In the order in which they are asked."""


def versions_of(question: Question, known: Known) -> list[int]:
    """The versions in which a question can be asked, by the registry."""
    sample = next(found for found in (question(version, known) for version in range(_MOST_VERSIONS)) if found)
    api = BY_KEY[sample.API_KEY]
    return [v for v in range(api.min_version, api.max_version + 1) if question(v, known) is not None]


_MOST_VERSIONS: Final = 20
"""More than any API has."""
