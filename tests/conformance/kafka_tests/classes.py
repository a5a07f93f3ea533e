"""Classes of Apache Kafka's own tests that can run here, by subject."""

from __future__ import annotations

from typing import Final


def _of(package: str, names: str) -> tuple[str, ...]:
    return tuple(f"{package}.{name}" for name in names.split())


_CLIENTS: Final = "org.apache.kafka.clients"
_TOOLS: Final = "org.apache.kafka.tools"

SUBJECTS: Final = {
    "share groups": (
        f"{_CLIENTS}.consumer.ShareConsumerTest",
        *_of(
            "kafka.server",
            "ShareFetchAcknowledgeRequestTest ShareGroupDescribeRequestTest ShareGroupHeartbeatRequestTest",
        ),
    ),
    "groups": (
        *_of(
            "kafka.server",
            "ConsumerGroupDescribeRequestTest ConsumerGroupHeartbeatRequestTest ConsumerProtocolMigrationTest "
            "DeleteGroupsRequestTest DescribeGroupsRequestTest HeartbeatRequestTest JoinGroupRequestTest "
            "LeaveGroupRequestTest ListGroupsRequestTest OffsetCommitRequestTest OffsetDeleteRequestTest "
            "OffsetFetchRequestTest SyncGroupRequestTest TxnOffsetCommitRequestTest",
        ),
        f"{_CLIENTS}.admin.DynamicGroupConfigIntegrationTest",
    ),
    "consumers": (
        *_of(
            f"{_CLIENTS}.consumer",
            "ConsumerBounceTest ConsumerIntegrationTest ConsumerTopicCreationTest PlaintextConsumerAssignTest "
            "PlaintextConsumerCallbackTest PlaintextConsumerCloseTest PlaintextConsumerCommitTest "
            "PlaintextConsumerFetchTest PlaintextConsumerPollTest PlaintextConsumerSubscriptionTest "
            "PlaintextConsumerTest SaslPlainPlaintextConsumerTest",
        ),
        *_of("kafka.api", "PlaintextConsumerAssignorsTest"),
        f"{_CLIENTS}.ClientRebootstrapTest",
    ),
    "transactions and producers": (
        *_of("kafka.api", "TransactionsTest TransactionsBounceTest PlaintextProducerSendTest"),
        *_of("kafka.server", "AddPartitionsToTxnRequestServerTest WriteTxnMarkersRequestTest"),
        *_of(_CLIENTS, "TransactionsExpirationTest TransactionsWithMaxInFlightOneTest"),
        f"{_CLIENTS}.admin.AdminFenceProducersTest",
        f"{_CLIENTS}.admin.DescribeProducersWithBrokerIdTest",
        *_of(
            f"{_CLIENTS}.producer",
            "ProducerCompressionTest ProducerFailureHandlingTest ProducerIdExpirationTest ProducerIntegrationTest "
            "ProducerSendWhileDeletionTest",
        ),
    ),
    "records": (
        *_of(
            "kafka.server",
            "DeleteRecordsRequestTest EdgeCaseRequestTest FetchRequestMaxBytesTest FetchRequestTest "
            "ListOffsetsRequestTest OffsetsForLeaderEpochRequestTest ProduceRequestTest",
        ),
        "org.apache.kafka.server.log.LogAppendTimeTest",
        f"{_CLIENTS}.admin.ConcurrentListOffsetsRequestTest",
        f"{_CLIENTS}.admin.ListOffsetsIntegrationTest",
    ),
    "administration": (
        *_of("kafka.admin", "AddPartitionsTest"),
        *_of("kafka.api", "PlaintextAdminIntegrationTest"),
        *_of(
            "kafka.server",
            "ApiVersionsRequestTest ControllerMutationQuotaTest CreateTopicsRequestTest DeleteTopicsRequestTest "
            "DeleteTopicsRequestWithDeletionDisabledTest DescribeClusterRequestTest DescribeLogDirsRequestTest "
            "SaslApiVersionsRequestTest",
        ),
        *_of("org.apache.kafka.server", "MetadataRequestTest config.MinInSyncReplicasConfigTest"),
        "org.apache.kafka.server.quota.ClientQuotasRequestTest",
        *_of(
            f"{_CLIENTS}.admin",
            "AutoTopicCreationTest DeleteTopicTest DescribeAuthorizedOperationsTest StaticBrokerConfigTest",
        ),
        f"{_CLIENTS}.security.GroupAuthorizerIntegrationTest",
    ),
    "tools": (
        *_of(
            _TOOLS,
            "AclCommandTest ClusterToolTest ConfigCommandIntegrationTest DeleteRecordsCommandTest FeatureCommandTest "
            "GetOffsetShellTest GroupsCommandTest LeaderElectionCommandTest LogDirsCommandTest TopicCommandTest "
            "UserScramCredentialsCommandTest",
        ),
        *_of(
            f"{_TOOLS}.consumer",
            "ConsoleConsumerTest group.DeleteConsumerGroupsTest "
            "group.DeleteOffsetsConsumerGroupCommandIntegrationTest group.DescribeConsumerGroupTest "
            "group.ListConsumerGroupTest group.ResetConsumerGroupOffsetTest",
        ),
        f"{_TOOLS}.reassign.ReassignPartitionsCommandTest",
    ),
}
