"""Validates JSON web tokens (RFC 7519) that clients present.

The signature is verified before anything it covers is trusted. Every check is necessary.
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
    def verify(self, algorithm: str, key_id: str | None, signed: bytes, signature: bytes) -> None:
        """Return if a key of the set, of the algorithm's kind, has made the signature. Thread-safe. Raises
        InvalidToken.
        """


@dataclass(frozen=True, slots=True)
class TokenRules:
    issuer: str | None
    """The issuer of all tokens; None if any may issue them."""
    audiences: tuple[str, ...]
    """The token must have one of them; empty if it may be for anybody."""
    clock_skew_s: int = 30
    subject_claim: str = "sub"
    scope_claim: str = "scope"


# PyJWT does not check claims: it uses the wall clock, which the core must not read, and accepts ``"1700000000"`` and
# ``true`` as times, and duplicate names.
class SignedTokens:
    def __init__(self, rules: TokenRules, key_set: Callable[[], VerifySignature | None]) -> None:
        self._rules = rules
        self._key_set = key_set

    def begin(self, token: str) -> TokenCheck:
        """Implements :class:`oncelog.core.sasl.oauthbearer.TokenValidator`."""
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
        if rules.issuer is not None and claims.get("iss") != rules.issuer:
            raise InvalidToken("its issuer is not the expected one")
        if rules.audiences and not _is_for(claims.get("aud"), rules.audiences):
            raise InvalidToken("its audience is not an expected one")
        # ``exp`` and ``iat`` are required.
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
        """Scopes grant nothing here; malformed ones are rejected, as in Apache Kafka."""
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
    # Never ``none``. ``verify`` also requires the kind of the verifying key: a public key is never the secret of an
    # HMAC.
    if algorithm not in ALGORITHMS:
        raise InvalidToken("its algorithm is not an accepted one")
    # No critical extension is supported. The key comes from the configured key set by its id: ``jku``, ``x5u`` and keys
    # in the header are ignored.
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
    """An object without duplicate names: two readers could see different values."""
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


def _is_for(audience: Any, expected: tuple[str, ...]) -> bool:
    named = [audience] if isinstance(audience, str) else audience
    return isinstance(named, list) and any(name in expected for name in named if isinstance(name, str))
