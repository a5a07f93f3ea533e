"""Differences that need more than the name of a field: APIs that we do not have, topics that spread late."""

from __future__ import annotations

from typing import Any, Final

from oncelog.core.configs.keys import DOCUMENTATION, NO_EFFECT
from oncelog.core.configs.own_keys import OWN_KEYS
from oncelog.handlers.registry import BY_KEY

FEATURES_OF_OTHER_APIS: Final = frozenset(
    {
        "eligible.leader.replicas.version",
        "kraft.version",
        "streams.version",
    }
)
"""Features that say something of APIs, or of a quorum, that we do not have."""
INIT_PRODUCER_ID: Final = 22
STABLE_INIT_PRODUCER_ID: Final = 5
"""Version 6 is two-phase commit, which Apache Kafka 4.3 holds back as unstable and we advertise."""
BROKER: Final = 4
CONFIGS_OF_THE_PROCESS: Final = frozenset(
    {
        "advertised.listeners",
        "controller.listener.names",
        "controller.quorum.voters",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "node.id",
        "process.roles",
        *(key.name for key in OWN_KEYS if not key.hidden),
    }
)
"""Broker keys that name its addresses, directories and quorum, and keys of our own."""
LAST_IN_4_3: Final = {18: 4, 28: 5, 42: 2}
"""The last version in Apache Kafka 4.3 of the APIs that have more in 4.4."""
RAISED_SINCE_4_3: Final = frozenset({"metadata.version", "share.version"})
API_VERSIONS: Final = 18
NOT_COORDINATOR: Final = 16
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
LEADER_NOT_AVAILABLE: Final = 5
UNKNOWN_TOPIC_ID: Final = 100
_WAITS: Final = "partition_error_code: 0, Apache Kafka 51"
_SPREADING: Final = (UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE)


def leave_out_what_cannot_agree(api: str, recorded: Any, ours: Any) -> None:
    """Take from both answers what the two brokers cannot have in common."""
    if api == "ApiVersions":
        recorded.api_keys = [row for row in recorded.api_keys if row.api_key in BY_KEY]
        for row in (*recorded.api_keys, *ours.api_keys):
            if row.api_key == INIT_PRODUCER_ID:
                row.max_version = min(row.max_version, STABLE_INIT_PRODUCER_ID)
        for features in (recorded.supported_features, recorded.finalized_features):
            features[:] = [feature for feature in features if feature.name not in FEATURES_OF_OTHER_APIS]
    elif api in ("Metadata", "DescribeTopicPartitions"):
        for topic in (*recorded.topics, *ours.topics):
            for partition in topic.partitions:
                partition.isr_nodes.sort()  # a set
    elif api == "DescribeGroups":
        # Tagged fields of our own, as in the two below.
        for group in ours.groups:
            group.pending_member_ids, group.pending_until_ms, group.pending_hosts = [], [], []
            group.awaited_member_ids = []
    elif api == "ShareGroupDescribe":
        for member in (member for answer in (recorded, ours) for group in answer.groups for member in group.members):
            member.subscribed_topic_names.sort()  # a set
    elif api == "DescribeProducers":
        # Tagged fields of our own, which other clients skip.
        for topic in ours.topics:
            for producer in (producer for partition in topic.partitions for producer in partition.active_producers):
                producer.transactional_id = producer.verdict = None
    elif api == "OffsetFetch":
        for group in ours.groups:
            if group.error_code == NOT_COORDINATOR:
                group.topics = []  # named for librdkafka, which otherwise never asks for them again
        if ours.error_code:
            ours.topics = []  # named for aiokafka, which otherwise takes them for partitions without an offset
    elif api == "DescribeTransactions":
        for state in ours.transaction_states:
            state.client_id = state.client_host = None
        for state in (*recorded.transaction_states, *ours.transaction_states):
            for topic in state.topics:
                topic.partitions.sort()
    elif api == "DescribeConfigs":
        for result in (*recorded.results, *ours.results):
            for config in result.configs:
                config.documentation = _comparable(config.documentation, config.name)
            if result.resource_type == BROKER:
                result.configs[:] = [c for c in result.configs if c.name not in CONFIGS_OF_THE_PROCESS]


def leave_out_what_is_newer(api: str, recorded: Any, ours: Any) -> None:
    """Take from our answer what Apache Kafka has since 4.4, and from both the texts that it has changed."""
    if api == "ApiVersions":
        for row in ours.api_keys:
            row.max_version = min(row.max_version, LAST_IN_4_3.get(row.api_key, row.max_version))
        for answer in (recorded, ours):
            for features in (answer.supported_features, answer.finalized_features):
                features[:] = [feature for feature in features if feature.name not in RAISED_SINCE_4_3]
    elif api == "CreateTopics":
        mine_by_name = {topic.name: topic for topic in ours.topics}
        for topic in recorded.topics:
            _leave_out_newer_keys(topic, mine_by_name.get(topic.name))
    elif api == "DescribeConfigs":
        for theirs, mine in zip(recorded.results, ours.results, strict=True):
            _leave_out_newer_keys(theirs, mine)
            for config in (*theirs.configs, *mine.configs):
                config.documentation = config.documentation and "as worded by its release"


def is_unknown_to_4_3(request: bytes) -> bool:
    """True for a version of ApiVersions that 4.3 refuses with its own range of them, which is not ours."""
    api_key, version = int.from_bytes(request[:2], "big"), int.from_bytes(request[2:4], "big")
    return api_key == API_VERSIONS and version > LAST_IN_4_3[API_VERSIONS]


def _leave_out_newer_keys(recorded: Any, ours: Any) -> None:
    if ours is not None and recorded.configs and ours.configs:
        names = {config.name for config in recorded.configs}
        ours.configs[:] = [config for config in ours.configs if config.name in names]


def _comparable(documentation: str | None, name: str) -> str | None:
    """A key's documentation without what we add; of keys that do something else here only that there is one."""
    if documentation and name in DOCUMENTATION:
        return "our own words"
    return documentation and documentation.removesuffix(f" {NO_EFFECT}")


def is_timed_out_fetch(api: str, answer: Any) -> bool:
    """True if the recorded answer is a fetch that brought nothing, so that its wait need not be repeated."""
    return api in ("Fetch", "ShareFetch") and not any(
        partition.records or partition.error_code for topic in answer.responses for partition in topic.partitions
    )


def excused(api: str, recorded: Any, ours: Any, line: str, created: set[str]) -> bool:
    """True if a difference is only Apache Kafka's delay, or ours, or a matter of the moment."""
    if api == "Metadata" and line.startswith("topics"):
        late = {topic.name for topic in recorded.topics if topic.error_code in _SPREADING} & created
        listed = {topic.name for topic in recorded.topics}
        late |= {topic.name for topic in ours.topics if topic.name in created and topic.name not in listed}
        return bool(late) and all(topic.error_code == 0 for topic in ours.topics if topic.name in late)
    if api == "AddPartitionsToTxn" and line.endswith(_WAITS):
        # Apache Kafka refuses while the transaction before completes, and the client asks again; we wait for it.
        return True
    if api == "DescribeGroups" and ".group_state" in line:
        # Which half of a rebalance another connection catches depends on the moment.
        return "'PreparingRebalance'" in line and "'CompletingRebalance'" in line
    return False
