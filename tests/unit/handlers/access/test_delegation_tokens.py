"""Delegation tokens, which a broker has none of: who is told that they are disabled, and who that it may not ask.

What the answers hold beside the error is compared with Apache Kafka's in ``tests.conformance.logins``.
"""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.security import ANONYMOUS, SecurityProtocol
from oncelog.handlers.api import Operation, ResourceType
from oncelog.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from oncelog.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from oncelog.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from oncelog.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.unit.handlers.cluster_broker import ClusterBroker, Denying

DISABLED = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
REQUESTS = [
    CreateDelegationTokenRequest(),
    RenewDelegationTokenRequest(hmac=b"code"),
    ExpireDelegationTokenRequest(hmac=b"code"),
    DescribeDelegationTokenRequest(owners=None),
]


def connected(protocol: SecurityProtocol, principal: str) -> ClusterBroker:
    broker = ClusterBroker({})
    broker.security_protocol, broker.principal = protocol, principal
    return broker


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
@pytest.mark.parametrize(
    ("protocol", "principal", "error"),
    [
        (SecurityProtocol.PLAINTEXT, ANONYMOUS, NOT_ALLOWED),
        (SecurityProtocol.SSL, ANONYMOUS, NOT_ALLOWED),
        (SecurityProtocol.SSL, "User:CN=alice", DISABLED),
        (SecurityProtocol.SASL_PLAINTEXT, "User:alice", DISABLED),
        (SecurityProtocol.SASL_SSL, "User:alice", DISABLED),
    ],
)
def test_tokens_are_disabled_for_clients_that_are_known(
    protocol: SecurityProtocol, principal: str, error: ErrorCode, request_: object
) -> None:
    assert connected(protocol, principal).call(request_, 2).error_code == error


def test_a_token_of_another_owner_needs_the_right_to_create_it() -> None:
    broker = connected(SecurityProtocol.SASL_SSL, "User:alice")
    denying = Denying((Operation.CREATE_TOKENS, ResourceType.USER, "User:bob"))
    bobs = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob")
    answer = broker.call(bobs, 3, denying)
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (answer.principal_name, answer.token_requester_principal_name) == ("bob", "alice")
    assert broker.call(bobs, 3).error_code == DISABLED
    assert broker.call(CreateDelegationTokenRequest(), 3, denying).error_code == DISABLED, "her own"
