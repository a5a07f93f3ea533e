"""DescribeUserScramCredentials, version 0 (KIP-554): which users have SCRAM credentials, never what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.core.controller.image.client_entities import ClientEntity
from oncelog.core.controller.image.cluster_image import ClusterImage, configs_of
from oncelog.core.sasl.scram_credentials import CODES, DamagedCredential, read_credential
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.RESOURCE_NOT_FOUND: "the user has no SCRAM credential",
    ErrorCode.DUPLICATE_RESOURCE: "the user is named twice",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to describe the cluster",
}


def handle(request: DescribeUserScramCredentialsRequest, context: Context) -> DescribeUserScramCredentialsResponse:
    """The users that are named; all that have credentials where none is named."""
    if not context.allows_cluster(Operation.DESCRIBE):
        return _denied(request)
    image = context.cluster.image
    if not request.users:
        results = [_described(user, infos) for user, infos in _all(image)]
    else:
        times: dict[str, int] = {}
        for each in request.users:
            times[each.name] = times.get(each.name, 0) + 1
        results = [_result(image, user, count) for user, count in times.items()]
    return DescribeUserScramCredentialsResponse(results=results)


def _all(image: ClusterImage) -> list[tuple[str, list[CredentialInfo]]]:
    users = sorted({entity.user for entity in image.client_entities if entity.user})
    described = [(user, _infos(image, user)) for user in users]
    return [(user, infos) for user, infos in described if infos]


def _result(image: ClusterImage, user: str, count: int) -> DescribeUserScramCredentialsResult:
    if count > 1:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}",
        )
    infos = _infos(image, user)
    if not infos:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {user}",
        )
    return _described(user, infos)


def _described(user: str, infos: list[CredentialInfo]) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=user, credential_infos=infos)


def _infos(image: ClusterImage, user: str) -> list[CredentialInfo]:
    configs = configs_of(image, ClientEntity(user=user)) if user else {}
    infos = []
    for code, mechanism in CODES.items():
        if mechanism in configs:
            try:
                iterations = read_credential(mechanism, configs[mechanism]).iterations
            except DamagedCredential:
                iterations = 0  # nobody can log in by it, but it can be seen and deleted
            infos.append(CredentialInfo(mechanism=code, iterations=iterations))
    return infos


def _denied(request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    refused = DescribeUserScramCredentialsResult(error_code=code, error_message=None)
    return DescribeUserScramCredentialsResponse(
        error_code=code, error_message=None, results=[refused for _ in request.users or ()]
    )
