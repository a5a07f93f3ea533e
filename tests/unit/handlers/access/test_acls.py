"""DescribeAcls, CreateAcls and DeleteAcls without an authorizer; what Apache Kafka answers is in the golden corpus."""

from __future__ import annotations

from typing import Any, Final

import pytest

from oncelog.base.errors import ErrorCode, PeerError
from oncelog.handlers.api import Operation, ResourceType
from oncelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from oncelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from oncelog.wire.messages.describe_acls import DescribeAclsRequest
from tests.unit.handlers.cluster_broker import ClusterBroker, Denying

KNOWN: Final[dict[str, Any]] = {"resource_type_filter": 2, "operation": 3, "permission_type": 3}
CREATION: Final[dict[str, Any]] = {"resource_type": 2, "operation": 3, "permission_type": 3}
NOT_ALTER, NOT_DESCRIBE = (
    Denying((operation, ResourceType.CLUSTER, None)) for operation in (Operation.ALTER, Operation.DESCRIBE)
)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_there_is_no_authorizer(version: int) -> None:
    broker = ClusterBroker()
    described = broker.call(DescribeAclsRequest(**KNOWN), version)
    assert (described.error_code, described.error_message, described.resources) == (
        ErrorCode.SECURITY_DISABLED,
        "No Authorizer is configured on the broker",
        [],
    )
    created = broker.call(CreateAclsRequest(creations=[AclCreation(**CREATION)] * 3), version)
    deleted = broker.call(DeleteAclsRequest(filters=[DeleteAclsFilter(**KNOWN)] * 3), version)
    for result in (*created.results, *deleted.filter_results):
        assert (result.error_code, result.error_message) == (
            ErrorCode.SECURITY_DISABLED,
            "No Authorizer is configured.",
        )
    assert (len(created.results), len(deleted.filter_results)) == (3, 3)


@pytest.mark.parametrize("version", [2, 3])
def test_what_decides_beside_the_lists_is_told_to_who_asks_for_it(version: int) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    settings = {"super.users": "User:a;User:b", "allow.everyone.if.no.acl.found": "true"}
    broker = ClusterBroker({"authorizer.class.name": authorizer, **settings})
    told = broker.call(DescribeAclsRequest(**KNOWN, with_settings=True), version)
    assert (told.error_code, told.super_users, told.allow_everyone) == (0, "User:a;User:b", True)
    plain = broker.call(DescribeAclsRequest(**KNOWN), version)
    assert (plain.super_users, plain.allow_everyone) == (None, False)
    denied = broker.call(DescribeAclsRequest(**KNOWN, with_settings=True), version, NOT_DESCRIBE)
    assert denied.super_users is None


def test_a_code_that_is_not_known_is_refused_in_apache_kafkas_words() -> None:
    broker = ClusterBroker({"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"})
    named = {"resource_name": "t", "principal": "User:a", "host": "*"}
    creations = [AclCreation(**{**CREATION, **named, key: 99}) for key in ("resource_type", "operation")]
    answer = broker.call(CreateAclsRequest(creations=creations), 3)
    assert [(result.error_code, result.error_message) for result in answer.results] == [
        (ErrorCode.INVALID_REQUEST, "Invalid resourceType UNKNOWN"),
        (ErrorCode.INVALID_REQUEST, "Invalid operation UNKNOWN"),
    ]


def test_who_may_not_ask() -> None:
    broker = ClusterBroker()
    described = broker.call(DescribeAclsRequest(**KNOWN), 3, NOT_DESCRIBE)
    created = broker.call(CreateAclsRequest(creations=[AclCreation(**CREATION)]), 3, NOT_ALTER)
    deleted = broker.call(DeleteAclsRequest(filters=[DeleteAclsFilter(**KNOWN)]), 3, NOT_ALTER)
    for answer in (described, *created.results, *deleted.filter_results):
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("unknown", ["resource_type", "pattern_type", "operation", "permission_type"])
def test_what_the_client_itself_does_not_know_closes_its_connection(unknown: str) -> None:
    broker = ClusterBroker()
    code = {unknown if unknown in KNOWN else f"{unknown}_filter": 0}
    expected = DeleteAclsFilter(**{**KNOWN, **code})
    creation = {unknown if unknown in CREATION else f"resource_{unknown}": 0}
    for request in (
        DescribeAclsRequest(**{**KNOWN, **code}),
        DeleteAclsRequest(filters=[DeleteAclsFilter(**KNOWN), expected]),
        CreateAclsRequest(creations=[AclCreation(**CREATION), AclCreation(**{**CREATION, **creation})]),
    ):
        with pytest.raises(PeerError):
            broker.call(request, 3)
