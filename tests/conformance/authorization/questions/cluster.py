"""Questions about the cluster, its configuration, and who may do and take how much of it."""

from __future__ import annotations

from typing import Any

from tests.conformance.authorization.questions.asking import Known, Question, make
from tests.conformance.authorization.world import ELSE, GROUP, HIDDEN, TOPIC, UNKNOWN


def api_versions(_version: int, _known: Known) -> Any:
    return make("api_versions.ApiVersionsRequest", client_software_name="c", client_software_version="1")


def describe_cluster(_version: int, _known: Known) -> Any:
    return make("describe_cluster.DescribeClusterRequest", include_cluster_authorized_operations=True)


def update_features(_version: int, _known: Known) -> Any:
    updates = [make("update_features.FeatureUpdateKey", feature="nonsense", max_version_level=1)]
    return make("update_features.UpdateFeaturesRequest", feature_updates=updates, validate_only=True)


def describe_configs(_version: int, _known: Known) -> Any:
    requests = ((2, TOPIC), (2, HIDDEN), (2, UNKNOWN), (4, "1"), (4, ""), (8, "1"), (16, "m"), (32, GROUP), (32, ELSE))
    resources = [
        make(
            "describe_configs.DescribeConfigsResource",
            resource_type=kind,
            resource_name=name,
            configuration_keys=["cleanup.policy", "consumer.session.timeout.ms"],
        )
        for kind, name in requests
    ]
    return make("describe_configs.DescribeConfigsRequest", resources=resources)


def altered(module: str, name: str) -> Question:
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


def list_config_resources(_version: int, _known: Known) -> Any:
    return make("list_config_resources.ListConfigResourcesRequest", resource_types=[])


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
    requests = (_acl(), _acl(4, "other"), _acl(name=""), _acl(operation=12))
    return make(
        "create_acls.CreateAclsRequest", creations=[make("create_acls.AclCreation", **fields) for fields in requests]
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
        "delete_acls.DeleteAclsRequest", filters=[make("delete_acls.DeleteAclsFilter", **item) for item in filters]
    )


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


def unregister_broker(_version: int, _known: Known) -> Any:
    return make("unregister_broker.UnregisterBrokerRequest", broker_id=99)
