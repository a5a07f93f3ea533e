"""SCRAM credentials of users (KIP-554): DescribeUserScramCredentials and AlterUserScramCredentials, version 0.

The client salts the password, which never reaches the broker; no response contains a salt or a key. Credentials are in
the tree with the user's other configs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import group_by_key
from oncelog.core.controller.entities.entity_writes import write_entities
from oncelog.core.controller.image.client_entities import ClientEntity
from oncelog.core.controller.image.cluster_image import ClusterImage, configs_of
from oncelog.core.controller.outcomes import Decided, Refusal
from oncelog.core.sasl.scram_credentials import (
    CODES,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    DamagedCredential,
    credential_of_salted,
    read_credential,
)
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.metadata_changes import CLUSTER_DENIED, committed, with_outcome
from oncelog.handlers.broker.waits import Steps
from oncelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from oncelog.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

DESCRIBE_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.RESOURCE_NOT_FOUND: "the user has no SCRAM credential",
    ErrorCode.DUPLICATE_RESOURCE: "the user is named twice",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to describe the cluster",
}


def describe(request: DescribeUserScramCredentialsRequest, context: Context) -> DescribeUserScramCredentialsResponse:
    if not context.allows_cluster(Operation.DESCRIBE):
        return _denied(request)
    image = context.cluster.image
    if not request.users:
        results = [_described(user, infos) for user, infos in _all(image)]
    else:
        # A user named twice is answered once, with an error.
        times: dict[str, int] = {}
        for named in request.users:
            times[named.name] = times.get(named.name, 0) + 1
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
                iterations = 0  # unusable for a login, but it can be listed and deleted
            infos.append(CredentialInfo(mechanism=code, iterations=iterations))
    return infos


def _denied(request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    refused = DescribeUserScramCredentialsResult(error_code=code, error_message=None)
    return DescribeUserScramCredentialsResponse(
        error_code=code, error_message=None, results=[refused for _ in request.users or ()]
    )


ALTER_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.RESOURCE_NOT_FOUND: "the credential to delete does not exist",
    ErrorCode.DUPLICATE_RESOURCE: "the user is named twice, be it with two mechanisms",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "an empty name or salt, a name or salt that is too long, iterations below 4096 "
    "or above 16384",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "neither SCRAM-SHA-256 nor SCRAM-SHA-512",
    ErrorCode.REQUEST_TIMED_OUT: "too many conflicting metadata changes",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to alter the cluster",
}

MAX_NAME: Final = 1024
MAX_BYTES: Final = 1024
"""The longest salt, and the longest salted password."""
_TWICE: Final = Refusal(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")

Change = ScramCredentialDeletion | ScramCredentialUpsertion


def alter(request: AlterUserScramCredentialsRequest, context: Context) -> Steps[AlterUserScramCredentialsResponse]:
    """Users are accepted or refused one by one."""
    requested: list[Change] = [*request.deletions, *request.upsertions]
    if not context.allows_cluster(Operation.ALTER):
        return _altered([change.name for change in requested], [CLUSTER_DENIED for _ in requested])
    changes = group_by_key((change.name, change) for change in requested)
    outcomes = yield from committed(lambda: _decide(context.cluster.image, list(changes.values())))
    return _altered(changes, outcomes)


def _decide(image: ClusterImage, changes: Sequence[Sequence[Change]]) -> Decided[None]:
    outcomes: list[Refusal | None] = []
    configs: dict[ClientEntity, Mapping[str, str]] = {}
    for of_user in changes:
        first = of_user[0]
        entity = ClientEntity(user=first.name)
        before = configs_of(image, entity) if first.name else {}
        refusal = _change_refusal(first, before)
        if refusal is None and len(of_user) > 1:
            refusal = _TWICE
        if refusal is None:
            configs[entity] = _after(first, before)
        # One outcome for each user, in the order of the request.
        outcomes.append(refusal)
    return Decided(write_entities(image, configs), outcomes)


def _change_refusal(change: Change, before: Mapping[str, str]) -> Refusal | None:
    if not change.name:
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in CODES:
        return Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialDeletion):
        if CODES[change.mechanism] in before:
            return None
        return Refusal(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    if change.iterations > MAX_ITERATIONS:
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if change.iterations < MIN_ITERATIONS:
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if not 0 < len(change.salt) <= MAX_BYTES or not 0 < len(change.salted_password) <= MAX_BYTES:
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salt or the salted password is empty or too long")
    if len(change.name) > MAX_NAME or not change.name.isprintable():
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username is too long or has control characters")
    return None


def _after(change: Change, before: Mapping[str, str]) -> dict[str, str]:
    mechanism = CODES[change.mechanism]
    after = {name: value for name, value in before.items() if name != mechanism}
    if isinstance(change, ScramCredentialUpsertion):
        salt, salted = bytes(change.salt), bytes(change.salted_password)
        after[mechanism] = credential_of_salted(mechanism, salt, salted, change.iterations).text()
    return after


def _altered(users: Iterable[str], outcomes: Iterable[Refusal | None]) -> AlterUserScramCredentialsResponse:
    results = [
        with_outcome(AlterUserScramCredentialsResult(user=user), outcome)
        for user, outcome in zip(users, outcomes, strict=True)
    ]
    return AlterUserScramCredentialsResponse(results=results)
