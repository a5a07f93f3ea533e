"""Access control lists of brokers that are newer than this client."""

from __future__ import annotations

from oncelog.admin.acls import list_acls
from oncelog.base.acls import Operation, PatternType, Permission, ResourceType
from oncelog.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from tests.unit.client.programs.fake_brokers import Runner
from tests.unit.client.programs.fake_brokers import runner as runner


def test_codes_that_are_not_known_are_listed_as_unknown(runner: Runner) -> None:
    entry = AclDescription(principal="User:u", host="*", operation=99, permission_type=99)
    resource = DescribeAclsResource(resource_type=99, resource_name="x", pattern_type=99, acls=[entry])
    runner.brokers.answers[DescribeAclsRequest] = lambda broker, message: DescribeAclsResponse(resources=[resource])
    ((pattern, listed),) = runner.run(list_acls(runner.cluster))
    assert pattern == (ResourceType.NONE, PatternType.UNKNOWN, "x")
    assert (listed.operation, listed.permission) == (Operation.NONE, Permission.UNKNOWN)
