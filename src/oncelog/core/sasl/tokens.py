"""JSON web tokens (RFC 7519) that a client shows: whose they are, and whether to believe it.

Rules, each necessary:

1. The algorithm is one of ``ALGORITHMS``, and the key that verifies is of its kind: ``none`` is none, and a public key
   is never taken for the secret of an HMAC.
2. The key comes from the configured key set by its id; the token names no place where to look for one (``jku``, ``x5u``
   and keys in the header are not read), and ``crit`` is refused, because nothing in it is understood.
3. The signature is verified before anything it covers is believed.
4. Issuer and audience are the expected ones; both are always configured.
5. ``exp`` and ``iat`` are there, and the time is between them; so is ``nbf``, where there is one. Clocks may differ by
   ``clock_skew_s``.
6. The subject is a text and not empty.

Signatures are verified outside (``VerifySignature``), where keys and cryptography are. Claims are not left to PyJWT: it
compares times with the wall clock, which the core must not read, and accepts more: ``"1700000000"`` and ``true`` as
times, and a name that comes twice.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from oncelog.base.units import SECOND_MS
from oncelog.core.sasl.exchange import InvalidToken, Login
from oncelog.core.sasl.oauthbearer import TokenCheck

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512"),
    *("PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512"),
)
MAX_TOKEN_BYTES: Final = 65536
MAX_SECONDS: Final = 1 << 40
_UNDERSTOOD_TYPES: Final = ("", "jwt", "at+jwt", "application/at+jwt", "application/jwt")
_MAX_USER: Final = 1024


class VerifySignature(Protocol):
    """The key set: keeps the public keys of the issuer."""

    def verify(self, algorithm: str, key_id: str | None, signed: bytes, signature: bytes) -> None:
        """Return if a key of the set, of the algorithm's kind, has signed. Any thread may call. Raises
        InvalidToken."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The claims that a token has to have."""

    issuer: str
    audiences: tuple[str, ...]
    """One of them has to be the token's."""
    clock_skew_s: int = 30
    subject_claim: str = "sub"
    scope_claim: str = "scope"


class SignedTokens:
    """Validates tokens by a key set; see the module for the rules."""

    def __init__(self, rules: TokenRules, key_set: Callable[[], VerifySignature | None]) -> None:
        self._rules = rules
        self._key_set = key_set

    def begin(self, token: str) -> TokenCheck:
        """See :class:`oncelog.core.sasl.oauthbearer.TokenValidator`."""
        key_set = self._key_set()
        if key_set is None:
            raise InvalidToken("there is no key set")
        if len(token) > MAX_TOKEN_BYTES:
            raise InvalidToken(f"it has {len(token)} bytes")
        parts = token.split(".")
        if len(parts) != 3:
            raise InvalidToken("it is not signed: a signed one has three parts")
        algorithm, key_id = _header(parts[0])
        signed = f"{parts[0]}.{parts[1]}".encode()
        verify = partial(key_set.verify, algorithm, key_id, signed, _decoded(parts[2]))
        return TokenCheck(verify, partial(self._login, parts[1]))

    def _login(self, part: str, now_ms: int) -> Login:
        claims, rules = _json(part), self._rules
        if claims.get("iss") != rules.issuer:
            raise InvalidToken("its issuer is not the expected one")
        audience = claims.get("aud")
        named = [audience] if isinstance(audience, str) else audience
        if not isinstance(named, list) or not any(
            audience in rules.audiences for audience in named if isinstance(audience, str)
        ):
            raise InvalidToken("its audience is not an expected one")
        skew_ms = rules.clock_skew_s * SECOND_MS
        expires_ms, issued_ms = _time_ms(claims, "exp"), _time_ms(claims, "iat")
        if now_ms - skew_ms >= expires_ms:
            raise InvalidToken("it has expired")
        if issued_ms > now_ms + skew_ms:
            raise InvalidToken("it is issued in the future")
        if "nbf" in claims and _time_ms(claims, "nbf") > now_ms + skew_ms:
            raise InvalidToken("it is not valid yet")
        if issued_ms > expires_ms:
            raise InvalidToken("it was issued after it expires")
        self._check_scope(claims)
        subject = claims.get(rules.subject_claim)
        if not isinstance(subject, str) or not subject.strip() or len(subject) > _MAX_USER or not subject.isprintable():
            raise InvalidToken(f"its claim {rules.subject_claim} is not a name")
        return Login(subject.strip(), expires_ms)

    def _check_scope(self, claims: dict[str, Any]) -> None:
        """Scopes grant nothing here; what is no list of them is refused, as in Apache Kafka."""
        scope = claims.get(self._rules.scope_claim)
        if scope is None or isinstance(scope, str):
            return
        if not isinstance(scope, list) or not all(isinstance(word, str) and word.strip() for word in scope):
            raise InvalidToken(f"its claim {self._rules.scope_claim} is not a list of scopes")
        if len({word.strip() for word in scope}) != len(scope):
            raise InvalidToken(f"its claim {self._rules.scope_claim} has a scope twice")


def _header(part: str) -> tuple[str, str | None]:
    header = _json(part)
    algorithm, key_id, kind = header.get("alg"), header.get("kid"), header.get("typ", "")
    if algorithm not in ALGORITHMS:
        raise InvalidToken("its algorithm is not an accepted one")
    if "crit" in header or "b64" in header:
        raise InvalidToken("its header has critical extensions")
    if not isinstance(kind, str) or kind.lower() not in _UNDERSTOOD_TYPES:
        raise InvalidToken("its type is not that of a token")
    if key_id is not None and not isinstance(key_id, str):
        raise InvalidToken("its key id is not text")
    return str(algorithm), key_id


def _time_ms(claims: dict[str, Any], name: str) -> int:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= MAX_SECONDS:
        raise InvalidToken(f"its claim {name} is not a time")
    return int(value * SECOND_MS)


def _json(part: str) -> dict[str, Any]:
    try:
        document = json.loads(_decoded(part), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise InvalidToken("a part of it is not JSON") from None
    if not isinstance(document, dict):
        raise InvalidToken("a part of it is not a JSON object")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, none of whose names comes twice: who reads the other value would be told something else."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name comes twice")
    return members


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _decoded(part: str) -> bytes:
    try:
        if "=" in part or "+" in part or "/" in part:
            raise ValueError("not the alphabet for URLs")
        return base64.b64decode(part.replace("-", "+").replace("_", "/") + "=" * (-len(part) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidToken("a part of it is not base64") from None
