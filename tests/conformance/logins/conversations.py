"""Conversations of clients with a SASL listener, as data; and answers written down so that brokers can be compared.

Both brokers have the same users: alice and bob by PLAIN (``alice-secret``, ``bob-secret``), carol by SCRAM-SHA-256. The
listener ENDING is like SASL_PLAINTEXT, but its sessions last a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from oncelog.client.machine.sasl.scram import Scram
from oncelog.wire.message import Message
from oncelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from oncelog.wire.messages.create_topics import CreateTopicsRequest
from oncelog.wire.messages.describe_delegation_token import DescribeDelegationTokenOwner, DescribeDelegationTokenRequest
from oncelog.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from oncelog.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from oncelog.wire.messages.fetch import FetchRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.metadata import MetadataRequest
from oncelog.wire.messages.produce import ProduceRequest
from oncelog.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.wire_structs import as_dict

SASL: Final = "SASL_PLAINTEXT"
ENDING: Final = "ENDING"
PLAINTEXT: Final = "PLAINTEXT"
SESSION_MS: Final = 60_000
CLOSED: Final = "closed"
PLAIN_LINE: Final = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret" user_bob="bob-secret";'
)
SCRAM_LINE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
MECHANISMS: Final = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
_VARYING: Final = ("throttle_time_ms", "brokers", "cluster_id", "controller_id", "api_keys", "topics")
_VARYING_FEATURES: Final = ("supported_features", "finalized_features", "finalized_features_epoch")


@dataclass(frozen=True)
class Ask:
    """A request with a header."""

    request: Any
    version: int


@dataclass(frozen=True)
class Bare:
    """A frame of bytes that is answered by another."""

    data: bytes


@dataclass(frozen=True)
class Answering:
    """A token that follows from the answer to the one before."""

    token: Callable[[bytes], bytes]


Step = Ask | Bare | Answering


@dataclass(frozen=True)
class Conversation:
    """The messages of one client on one connection, until it is closed or has said all."""

    name: str
    listener: str
    steps: Sequence[Step]


def described(response: Message | bytes | str) -> Any:
    """An answer as JSON, without what differs from broker to broker or from run to run."""
    if isinstance(response, str):
        return response
    if isinstance(response, bytes):
        return _token(response)
    fields = {name: value for name, value in as_dict(response).items() if name not in _VARYING + _VARYING_FEATURES}
    for name in {"auth_bytes", "hmac"} & fields.keys():
        fields[name] = _token(bytes(fields[name]))
    if "mechanisms" in fields:
        fields["mechanisms"].sort()  # there they are in the order of a hash table
    if "results" in fields:
        fields["results"].sort(key=lambda result: str(result.get("user")))
        for result in fields["results"]:
            result.get("credential_infos", []).sort(key=lambda info: int(info["mechanism"]))
    return fields


def _token(data: bytes) -> str:
    """SCRAM's messages are new each time: of those, the names of their fields."""
    if data.startswith((b"r=", b"v=")):
        return ",".join(part.partition(b"=")[0].decode() for part in data.split(b","))
    return data.decode()


def _plain(user: str, password: str, text: str = "") -> bytes:
    return f"{text}\0{user}\0{password}".encode()


def _handshake(mechanism: str, version: int = 1) -> Ask:
    return Ask(SaslHandshakeRequest(mechanism=mechanism), version)


def _token_of(data: bytes, version: int = 2) -> Ask:
    return Ask(SaslAuthenticateRequest(auth_bytes=data), version)


def _log_in(user: str = "alice", password: str = "alice-secret", version: int = 2) -> list[Step]:
    return [_handshake("PLAIN"), _token_of(_plain(user, password), version)]


def _scram(user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> list[Step]:
    client = Scram(mechanism, user, password, "client-nonce")
    return [_handshake(mechanism), _token_of(client.first()), Answering(lambda answer: client.step(answer) or b"")]


def _scram_final(change: Callable[[bytes], bytes]) -> list[Step]:
    first, *rest, last = _scram("carol", "carol-secret")
    assert isinstance(last, Answering)
    return [first, *rest, Answering(lambda answer: change(last.token(answer)))]


def _other_nonce(message: bytes) -> bytes:
    return message.replace(b"r=client-nonce", b"r=client-nonsense")


def _upsertion(name: str, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=bytes(32)
    )


def _alter(deletions: Sequence[tuple[str, int]] = (), upsertions: Sequence[ScramCredentialUpsertion] = ()) -> Ask:
    gone = [ScramCredentialDeletion(name=name, mechanism=mechanism) for name, mechanism in deletions]
    return Ask(AlterUserScramCredentialsRequest(deletions=gone, upsertions=list(upsertions)), 0)


def _describe(*users: str) -> Ask:
    return Ask(DescribeUserScramCredentialsRequest(users=[UserName(name=user) for user in users]), 0)


_SOFTWARE: Final = ApiVersionsRequest(client_software_name="conversations", client_software_version="1")
_METADATA: Final = Ask(MetadataRequest(topics=[]), 9)
_VERSIONS: Final = Ask(_SOFTWARE, 3)


def _tokens() -> list[Step]:
    """Every question about delegation tokens, in every version, to a broker that has none."""
    steps: list[Step] = []
    for version in (1, 2, 3):
        for owner, renewers in (("", []), ("bob", []), ("", [("User", "bob")]), ("bob", [("Group", "x")])):
            request = CreateDelegationTokenRequest(
                owner_principal_type="User" if owner else None,
                owner_principal_name=owner or None,
                renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in renewers],
                max_lifetime_ms=1000,
            )
            steps.append(Ask(request, version))
        alice = DescribeDelegationTokenOwner(principal_type="User", principal_name="alice")
        steps += [Ask(DescribeDelegationTokenRequest(owners=owners), version) for owners in (None, [], [alice])]
    for version in (1, 2):
        steps.append(Ask(RenewDelegationTokenRequest(hmac=b"code", renew_period_ms=1000), version))
        steps.append(Ask(ExpireDelegationTokenRequest(hmac=b"code", expiry_time_period_ms=-1), version))
    return steps


CONVERSATIONS: Final = (
    Conversation("plain", SASL, [*_log_in(), _METADATA]),
    Conversation("plain, version 0 of the token", SASL, [*_log_in(version=0), _METADATA]),
    Conversation("plain, version 1 of the token", SASL, [*_log_in(version=1), _METADATA]),
    Conversation("plain after versions", SASL, [_VERSIONS, *_log_in(), _METADATA]),
    Conversation("wrong password", SASL, _log_in("alice", "wrong")),
    Conversation("unknown user", SASL, _log_in("nobody", "wrong")),
    Conversation("no user", SASL, _log_in("", "x")),
    Conversation("no password", SASL, _log_in("alice", "")),
    Conversation("another user wanted", SASL, [_handshake("PLAIN"), _token_of(_plain("alice", "alice-secret", "bob"))]),
    Conversation("the user wanted", SASL, [_handshake("PLAIN"), _token_of(_plain("alice", "alice-secret", "alice"))]),
    Conversation("two parts", SASL, [_handshake("PLAIN"), _token_of(b"alice\0alice-secret")]),
    Conversation("four parts", SASL, [_handshake("PLAIN"), _token_of(b"\0alice\0alice-secret\0")]),
    Conversation("an empty token", SASL, [_handshake("PLAIN"), _token_of(b"")]),
    Conversation("scram", SASL, [*_scram("carol", "carol-secret"), _METADATA]),
    Conversation("scram, wrong password", SASL, _scram("carol", "wrong")),
    Conversation("scram, another nonce", SASL, _scram_final(_other_nonce)),
    Conversation("scram, no message", SASL, [_handshake("SCRAM-SHA-256"), _token_of(b"n,,")]),
    Conversation("scram, another user wanted", SASL, [_handshake("SCRAM-SHA-256"), _token_of(b"n,a=bob,n=carol,r=x")]),
    Conversation("unknown mechanism", SASL, [_handshake("GSSAPI"), _METADATA]),
    Conversation("unknown mechanism, the oldest way", SASL, [_handshake("SCRAM-SHA-1", 0)]),
    Conversation("a mechanism in small letters", SASL, [_handshake("plain")]),
    Conversation("metadata first", SASL, [_METADATA]),
    Conversation("a token first", SASL, [_token_of(_plain("alice", "alice-secret"))]),
    Conversation("versions twice", SASL, [_VERSIONS, _VERSIONS]),
    Conversation("versions, then metadata", SASL, [_VERSIONS, _METADATA]),
    Conversation("unnamed software, then versions", SASL, [Ask(ApiVersionsRequest(), 3), _VERSIONS, *_log_in()]),
    *(
        Conversation(f"{type(ask.request).__name__} {ask.version} in the middle", SASL, [_handshake("PLAIN"), ask])
        for ask in (
            Ask(MetadataRequest(topics=[]), 1),
            Ask(MetadataRequest(topics=[]), 9),
            Ask(FindCoordinatorRequest(key="g"), 1),
            Ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4),
            Ask(ListGroupsRequest(), 3),
            Ask(ProduceRequest(acks=-1, timeout_ms=10, topic_data=[]), 9),
            Ask(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, topics=[]), 12),
            Ask(CreateTopicsRequest(topics=[], timeout_ms=10), 5),
            Ask(SaslHandshakeRequest(mechanism="PLAIN"), 1),
            _VERSIONS,
        )
    ),
    Conversation("the oldest way", SASL, [_handshake("PLAIN", 0), Bare(_plain("alice", "alice-secret")), _METADATA]),
    Conversation("the oldest way, wrong password", SASL, [_handshake("PLAIN", 0), Bare(_plain("alice", "wrong"))]),
    Conversation("handshake after the login", SASL, [*_log_in(), _handshake("PLAIN"), _METADATA]),
    Conversation("handshake 0 after the login", SASL, [*_log_in(), _handshake("PLAIN", 0), _METADATA]),
    Conversation("token after the login", SASL, [*_log_in(), _token_of(_plain("bob", "bob-secret")), _METADATA]),
    Conversation("handshake without sasl", PLAINTEXT, [_handshake("PLAIN"), _token_of(b"x"), _METADATA]),
    Conversation("a session", ENDING, [*_log_in(), _METADATA]),
    Conversation("a session, version 0 of the token", ENDING, [*_log_in(version=0), _METADATA]),
    Conversation("again at once", ENDING, [*_log_in(), *_log_in(), _METADATA]),
    Conversation("again twice at once", ENDING, [*_log_in(), *_log_in(), _handshake("PLAIN"), _METADATA]),
    Conversation("again as another", ENDING, [*_log_in(), *_log_in("bob", "bob-secret")]),
    Conversation("again with a wrong password", ENDING, [*_log_in(), *_log_in("alice", "wrong")]),
    Conversation("again by scram", ENDING, [*_log_in(), *_scram("carol", "carol-secret")]),
    Conversation("again by an unknown mechanism", ENDING, [*_log_in(), _handshake("GSSAPI")]),
    Conversation("again, and metadata in the middle", ENDING, [*_log_in(), _handshake("PLAIN"), _METADATA]),
    Conversation("again by scram, wrong password", ENDING, [*_scram("carol", "carol-secret"), *_scram("carol", "no")]),
    Conversation(
        "again, the oldest way", ENDING, [*_log_in(), _handshake("PLAIN", 0), Bare(_plain("alice", "alice-secret"))]
    ),
    Conversation("delegation tokens", SASL, [*_log_in(), *_tokens()]),
    Conversation("delegation tokens without a login", PLAINTEXT, _tokens()),
    Conversation("describe users", PLAINTEXT, [_describe("carol", "nobody", "carol"), _describe(), _describe("x")]),
    Conversation(
        "alter users",
        PLAINTEXT,
        [
            _alter(upsertions=[_upsertion("dave"), _upsertion("dave", 2)]),
            _alter(upsertions=[_upsertion("dave"), _upsertion("dave")]),
            _alter(upsertions=[_upsertion("dave"), _upsertion("erin", iterations=4095), _upsertion("", 1)]),
            _alter(upsertions=[_upsertion("erin", iterations=16385), _upsertion("frank", 3), _upsertion("", 3)]),
            _alter([("dave", 2), ("erin", 1), ("", 1), ("frank", 0)]),
            _alter([("dave", 1)], [_upsertion("dave")]),
            _alter([("dave", 1), ("dave", 1)]),
            _alter([("erin", 1), ("erin", 1)]),
            _alter(upsertions=[_upsertion("erin", iterations=1), _upsertion("erin", iterations=1)]),
            _alter(upsertions=[_upsertion("erin", iterations=1), _upsertion("erin")]),
            _alter(upsertions=[_upsertion("erin"), _upsertion("erin", iterations=1)]),
            _alter(upsertions=[_upsertion("erin"), _upsertion("erin"), _upsertion("erin")]),
            _describe("dave", "erin"),
            _alter(upsertions=[_upsertion("dave", 2, 16384)]),
            _describe("dave"),
            _alter([("dave", 1)]),
            _alter([("dave", 2)]),
            _describe("dave"),
            _alter(),
        ],
    ),
)
