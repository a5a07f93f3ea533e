"""The machines of SASL under whatever bytes: nothing but the right exchange lets anybody in, and nothing is raised but
a refusal. Every message is also cut at each of its bytes."""

from __future__ import annotations

import base64
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.base.errors import PeerError
from oncelog.client.machine.sasl.scram import Scram
from oncelog.core.sasl.exchange import InvalidToken, Login, LoginRefused, settled
from oncelog.core.sasl.jaas import JaasError, parse_jaas
from oncelog.core.sasl.oauthbearer import OAuthBearer, TokenCheck
from oncelog.core.sasl.plain import Plain
from oncelog.core.sasl.scram import ScramServer
from oncelog.core.sasl.scram_credentials import DamagedCredential, credential_of, read_credential
from oncelog.core.sasl.tokens import SignedTokens, TokenRules
from oncelog.node.access.redaction import redacted_frame
from oncelog.wire.apis import BY_KEY
from oncelog.wire.header import decode_request_header
from tests.scenario.node.logins import DELAY_MS, LISTENER, secured

MECHANISM = "SCRAM-SHA-256"
CREDENTIAL = credential_of(MECHANISM, "secret", b"salt", 4096)
PLAIN_MESSAGE = b"\0alice\0secret"
BEARER_MESSAGE = b"n,,\1auth=Bearer good\1x=y\1\1"
RULES = TokenRules("issuer", ("audience",))


class Good:
    """Takes the token ``good``, and every signature."""

    def begin(self, token: str) -> TokenCheck:
        def verify() -> None:
            if token != "good":
                raise InvalidToken("another token")

        return TokenCheck(verify, lambda _now_ms: Login("alice"))

    def verify(self, algorithm: str, key_id: str | None, signed: bytes, signature: bytes) -> None:
        pass


def machines():
    return (
        Plain({"alice": "secret"}),
        ScramServer(MECHANISM, lambda user: CREDENTIAL, "server"),
        OAuthBearer(Good()),
    )


def logins(machine, messages) -> list[Login]:
    """Those that a machine lets in; a refusal ends it."""
    results = []
    told = ""
    try:
        for message in messages:
            step = settled(machine.step(message, 0), 0)
            if step.login is not None:
                results.append(step.login)
    except LoginRefused as refused:
        told = str(refused) + str(refused.shown)
    assert "secret" not in told
    return results


SCRAM_PARTS = (b"n,,", b"n=alice", b"r=client", b"r=clientserver", b"c=biws", b"p=AAAA", b"a=alice", b"tokenauth=true")
FRAGMENTS = st.sampled_from(
    (*SCRAM_PARTS, b",", b"=", b"\0", b"\1", b"auth=Bearer good", b"alice", b"secret", b"m=x", b"\xff")
)
MESSAGES = st.lists(FRAGMENTS | st.binary(max_size=20), max_size=8).map(b"".join)


@given(st.lists(MESSAGES | st.binary(max_size=200), max_size=4))
def test_no_bytes_let_anybody_in_but_the_right_ones(messages):
    for machine in machines():
        for login in logins(machine, messages):
            assert login == Login("alice")
            assert b"alice\0secret" in messages[0] or b"\1auth=Bearer good\1" in messages[0]


@given(st.binary(min_size=1, max_size=30))
def test_whatever_follows_the_end_is_refused(more):
    for machine, message in zip(machines()[::2], (PLAIN_MESSAGE, BEARER_MESSAGE), strict=True):
        assert logins(machine, [message, more]) == [Login("alice")]


def _scram(cut_first: int | None = None, cut_last: int | None = None) -> list[Login]:
    machine, client = machines()[1], Scram(MECHANISM, "alice", "secret", "client")
    try:
        answer = machine.step(client.first()[:cut_first], 0).answer
        last = client.step(answer)[:cut_last]
        return logins(machine, [last])
    except LoginRefused:
        return []


def test_scram_cut_at_every_byte():
    assert _scram() == [Login("alice")]
    client = Scram(MECHANISM, "alice", "secret", "client")
    # Cut within the nonce it is another nonce, and a client that says so would be let in.
    whole = len(client.first()) - len("lient")
    assert not any(_scram(cut_first=size) for size in range(whole))
    size = len(client.step(machines()[1].step(client.first(), 0).answer))
    assert not any(_scram(cut_last=cut) for cut in range(size))


def test_plain_and_tokens_cut_at_every_byte():
    for cut in range(len(PLAIN_MESSAGE)):
        assert not logins(machines()[0], [PLAIN_MESSAGE[:cut]])
    for cut in range(len(BEARER_MESSAGE)):
        assert not logins(machines()[2], [BEARER_MESSAGE[:cut]])


@given(st.data())
def test_a_proof_with_one_other_bit_is_none(data):
    machine, client = machines()[1], Scram(MECHANISM, "alice", "secret", "client")
    last = bytearray(client.step(machine.step(client.first(), 0).answer))
    position = data.draw(st.integers(0, len(last) - 1))
    last[position] ^= 1 << data.draw(st.integers(0, 7))
    assert not logins(machine, [bytes(last)])


def _part(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
CLAIMS = st.dictionaries(st.sampled_from(["iss", "aud", "exp", "iat", "nbf", "sub", "scope"]), JSON)


@given(
    st.dictionaries(st.sampled_from(["alg", "kid", "typ", "crit"]), st.sampled_from(["RS256", "none", "JWT"]) | JSON),
    CLAIMS,
    st.integers(-(10**15), 10**15),
)
def test_tokens_of_any_claims_are_refused_or_name_who_they_say(header, claims, now_ms):
    parts = [_part(json.dumps(part).encode()) for part in (header, claims)]
    try:
        login = SignedTokens(RULES, Good).begin(".".join([*parts, "AAAA"])).login(now_ms)
    except InvalidToken:
        return
    assert login.user == claims["sub"].strip()
    assert claims["iss"] == "issuer"
    assert header["alg"] == "RS256"
    assert login.expires_ms is not None
    assert login.expires_ms > now_ms - 30_000


@given(st.text(alphabet="ab.eyJ0_-=", max_size=60) | st.text(max_size=40))
def test_texts_that_are_no_tokens_are_refused(text):
    try:
        SignedTokens(RULES, Good).begin(text).login(0)
    except InvalidToken:
        return
    raise AssertionError(text)


@given(st.text(max_size=60) | st.text(alphabet="ab =\"'\\;/*\n", max_size=60))
def test_jaas_lines_are_read_or_refused(text):
    told = ""
    try:
        parse_jaas("a.B required " + text)
    except JaasError as error:
        told = str(error)
    assert text.strip() not in told or len(text.strip()) < 3


@given(st.text(max_size=100))
def test_credentials_are_read_or_damaged(text):
    try:
        read_credential(MECHANISM, text)
    except DamagedCredential:
        return
    raise AssertionError(text)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(BY_KEY)), st.integers(0, 3), st.binary(max_size=40)), max_size=6))
def test_a_broker_lets_nobody_in_by_any_frames(frames):
    driver = _DRIVER
    peer = driver.connect(LISTENER)
    peer.raw = True
    for key, version, body in frames:
        peer.send_frame(key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\xff\xff" + body)
    driver.advance(DELAY_MS)
    assert driver.fatal is None
    assert driver.reports == []
    connection = driver.node.connections.by_id[peer.id]
    assert connection.principal == "User:ANONYMOUS"
    driver.disconnect(peer)


@given(st.sampled_from([33, 36, 44, 51]), st.integers(-1, 4), st.binary(max_size=60))
def test_what_is_recorded_of_a_frame_with_secrets_can_be_read(key, version, body):
    frame = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + b"\0\0\0\1\xff\xff" + body
    shown = redacted_frame(frame)
    assert (shown is None) or key != 36
    if shown is not None:
        try:
            decode_request_header(shown)
        except PeerError:
            raise AssertionError(shown) from None


_DRIVER = secured()
