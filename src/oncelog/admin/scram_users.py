"""Lists, creates, changes and deletes SCRAM credentials of users on any cluster (KIP-554).

A password never leaves this process; brokers get only the salted, iterated key that they verify it by.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.scram_salts import SALT_BITS, salt_text
from oncelog.client.programs import Cluster, Program, operation, raise_for_error
from oncelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from oncelog.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName

MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Mechanism numbers in Kafka's protocol."""
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
"""The most iterations that brokers accept, Apache Kafka's too."""
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_NAMES: Final = {number: name for name, number in MECHANISMS.items()}


class Credential(NamedTuple):
    user: str
    mechanism: str
    iterations: int


@operation
def list_credentials(cluster: Cluster, users: Collection[str] | None = None) -> Program[list[Credential]]:
    """The credentials of these users, or of all, by user and mechanism. Raises BrokerRefused."""
    names = None if users is None else [UserName(name=name) for name in sorted(users)]
    response = yield from cluster.request(DescribeUserScramCredentialsRequest(users=names))
    raise_for_error(response, "SCRAM users")
    credentials: list[Credential] = []
    for result in response.results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        raise_for_error(result, f"credentials of user {result.user}")
        for info in result.credential_infos:
            mechanism = _NAMES.get(info.mechanism, f"mechanism {info.mechanism}")
            credentials.append(Credential(result.user, mechanism, info.iterations))
    return sorted(credentials)


@operation
def set_password(
    cluster: Cluster,
    user: str,
    password: str,
    mechanisms: Sequence[str] = tuple(MECHANISMS),
    iterations: int = MIN_ITERATIONS,
) -> Program[None]:
    """Set a user's password for each of these mechanisms. Raises BrokerRefused, and ValueError for an empty
    password."""
    if not password:
        raise ValueError("the password must not be empty")
    for mechanism in mechanisms:
        salt = salt_text(secrets.randbits(SALT_BITS))
        salted = hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)
        upsertion = ScramCredentialUpsertion(
            name=user, mechanism=MECHANISMS[mechanism], iterations=iterations, salt=salt, salted_password=salted
        )
        # A request may name a user only once: each mechanism needs its own.
        yield from _alter(cluster, AlterUserScramCredentialsRequest(upsertions=[upsertion]), user)


@operation
def delete_credentials(cluster: Cluster, user: str, mechanisms: Sequence[str]) -> Program[None]:
    """Delete credentials; open connections stay until they authenticate again. Raises BrokerRefused."""
    for mechanism in mechanisms:
        deletion = ScramCredentialDeletion(name=user, mechanism=MECHANISMS[mechanism])
        yield from _alter(cluster, AlterUserScramCredentialsRequest(deletions=[deletion]), user)


def _alter(cluster: Cluster, request: AlterUserScramCredentialsRequest, user: str) -> Program[None]:
    response = yield from cluster.request(request, broker="controller")
    for result in response.results:
        raise_for_error(result, f"credentials of user {user}")
