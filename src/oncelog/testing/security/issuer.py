"""An issuer of signed tokens (JWT) in this process: its public key in a key set that the broker reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from oncelog.testing.security.kinds import AUDIENCE, ISSUER

_ALGORITHM: Final = "ES256"
_ISSUED_BEFORE_S: Final = 3600
"""Tokens are dated back, so that one that has expired already can be made, too."""


class TokenIssuer:
    """Signs tokens with a key of its own."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._key = ec.generate_private_key(ec.SECP256R1())

    def write_key_set(self, path: Path) -> None:
        """Write the public key as a JSON web key set."""
        public: Any = ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        keys = [{**public, "kid": "1", "use": "sig", "alg": _ALGORITHM}]
        path.write_text(json.dumps({"keys": keys}), encoding="utf-8")

    def token(self, user: str, expires_in: float, **claims: object) -> str:
        """A token for ``user`` that expires in so many seconds, which may be negative; ``claims`` are added, or take
        the place of its own."""
        now_s = self._now_s()
        told = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": user,
            "iat": min(now_s, now_s + expires_in) - _ISSUED_BEFORE_S,
            "exp": now_s + expires_in,
        }
        return jwt.encode({**told, **claims}, self._key, algorithm=_ALGORITHM, headers={"kid": "1"})
