"""An issuer of signed tokens (JWT) in this process, with its public key in a key set for the broker."""

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
# Tokens are backdated, so that expired ones can be issued.
_ISSUED_BEFORE_S: Final = 3600


class TokenIssuer:
    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._key = ec.generate_private_key(ec.SECP256R1())

    def write_key_set(self, path: Path) -> None:
        public: Any = ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        keys = [{**public, "kid": "1", "use": "sig", "alg": _ALGORITHM}]
        path.write_text(json.dumps({"keys": keys}), encoding="utf-8")

    def token(self, user: str, expires_in: float, **claims: object) -> str:
        """A token that expires in ``expires_in`` seconds (negative: expired). ``claims`` are added, or replace the
        default ones."""
        now_s = self._now_s()
        default_claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": user,
            "iat": min(now_s, now_s + expires_in) - _ISSUED_BEFORE_S,
            "exp": now_s + expires_in,
        }
        return jwt.encode({**default_claims, **claims}, self._key, algorithm=_ALGORITHM, headers={"kid": "1"})
