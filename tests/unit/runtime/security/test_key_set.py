"""Key sets: which keys are taken, and which signatures."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from oncelog.core.sasl.exchange import InvalidToken
from oncelog.runtime.security.oauth_keys import MAX_BYTES, MAX_KEYS, UnusableKeySet, read_key_set
from tests.unit.runtime.security.signing import document, ec_key, jwk, rsa_key, signed

pytestmark = pytest.mark.slow  # keys are made


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
def test_an_rsa_key_verifies_what_it_has_signed(algorithm):
    keys = read_key_set(document(jwk(rsa_key(), "a"), jwk(ec_key(), "b")))
    keys.verify(algorithm, "a", *signed(rsa_key(), algorithm))
    with pytest.raises(InvalidToken, match="signature"):
        keys.verify(algorithm, "a", b"x", signed(rsa_key(), algorithm)[1])


def test_a_key_of_a_curve_verifies_what_it_has_signed():
    keys = read_key_set(document(jwk(rsa_key(), "a"), jwk(ec_key(), "b")))
    keys.verify("ES256", "b", *signed(ec_key(), "ES256"))
    keys.verify("ES256", None, *signed(ec_key(), "ES256"))
    for signature in (b"", b"\0" * 64, b"x" * 10_000):
        with pytest.raises(InvalidToken, match="signature"):
            keys.verify("ES256", "b", b"x", signature)


def test_a_key_is_used_for_its_own_kind_alone_and_an_unknown_one_is_asked_for():
    requests = []
    keys = read_key_set(document(jwk(rsa_key(), "a", alg="RS256"), jwk(ec_key(), "b")), lambda: requests.append(1))
    for algorithm, key_id in (("ES256", "a"), ("RS256", "b"), ("RS512", "a"), ("ES384", "b"), ("RS256", "c")):
        with pytest.raises(InvalidToken, match="not in the key set"):
            keys.verify(algorithm, key_id, *signed(rsa_key(), "RS256"))
    assert len(requests) == 5


def test_cve_2026_33557_a_public_key_is_not_the_secret_of_an_hmac():
    public = rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    secret = {"kty": "oct", "kid": "a", "k": base64.urlsafe_b64encode(public).decode()}
    keys = read_key_set(document(secret, jwk(rsa_key(), "a")))
    assert len(keys) == 1
    with pytest.raises(InvalidToken):
        keys.verify("HS256", "a", b"body", hmac.digest(public, b"body", hashlib.sha256))


def test_keys_that_cannot_be_used_are_left_out():
    keys = read_key_set(
        document(
            jwk(rsa_key(), "good"),
            jwk(rsa_key(1024), "short"),
            jwk(rsa_key(), "encrypts", use="enc"),
            jwk(rsa_key(), "secret", d="x"),
            {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
            {"kty": "OKP", "crv": "Ed25519", "x": "AA"},
            {"kty": "RSA", "n": "", "e": ""},
            {"kid": 7},
        )
    )
    assert len(keys) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b'{"keys": []}',
        b'{"keys": [1]}',
        b"[" * 100_000,
        document(*[{}] * (MAX_KEYS + 1)),
        b" " * (MAX_BYTES + 1),
    ],
)
def test_what_is_no_key_set_is_refused(data):
    with pytest.raises(UnusableKeySet):
        read_key_set(data)
