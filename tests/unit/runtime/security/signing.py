"""Keys that sign tokens, as an issuer of tokens has them; made once, because that takes a moment."""

from __future__ import annotations

import base64
import functools
import json
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm


@functools.cache
def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


@functools.cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def jwk(key: Any, key_id: str | None = None, **more: object) -> dict[str, Any]:
    """The public half of a key, as a key set lists it."""
    algorithm = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    named = {} if key_id is None else {"kid": key_id}
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), **named, **more}


def document(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def signed(key: Any, algorithm: str, claims: dict[str, Any] | None = None, **header: Any) -> tuple[bytes, bytes]:
    """The signed part of a token, and its signature."""
    token = jwt.encode(claims or {"sub": "alice"}, key, algorithm, headers=header)
    body, _, signature = token.rpartition(".")
    return body.encode(), base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
