"""The public keys by which tokens are verified: a JSON web key set (RFC 7517), read from bytes.

Signatures are PyJWT's and cryptography's (the extra ``oncelog[security]``); no other module imports them for tokens.

Rules: public keys of RSA (2,048 to 8,192 bits) and of the three curves, nothing else; a key is used with the algorithms
of its kind alone, and with the one that it names. A secret (``oct``) is never a key here, so that no HMAC can be made
with what everybody may read. PyJWT reads each key; its ``PyJWKSet`` takes secrets and private keys too, and lets an RSA
key that names no algorithm verify RS256 only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from oncelog.node.listeners.token_keys import ALGORITHMS, InvalidToken

if TYPE_CHECKING:
    from jwt.algorithms import Algorithm

MAX_BYTES: Final = 1 << 20
MAX_KEYS: Final = 100
MAX_TRIED: Final = 4
"""Keys that a token without a key id is tried with: each costs a tenth of a millisecond."""
RSA_BITS: Final = range(2048, 8193)
_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_PRIVATE: Final = ("d", "p", "q", "dp", "dq", "qi", "oth", "k")


class UnusableKeySet(Exception):
    """The document is no key set, or has no key that can be used; the message says why."""


class SecurityExtraMissing(Exception):
    """PyJWT or cryptography is not installed."""

    def __init__(self) -> None:
        super().__init__("OAUTHBEARER needs PyJWT and cryptography: pip install 'oncelog[security]'")


@dataclass(frozen=True, slots=True)
class _Key:
    key_id: str | None
    algorithms: frozenset[str]
    public: Any

    def fits(self, algorithm: str, key_id: str | None) -> bool:
        return algorithm in self.algorithms and (key_id is None or self.key_id == key_id)


class KeySet:
    """Keys as of one reading. ``unknown_key`` is called when a token names a key that is not among them."""

    def __init__(self, keys: Iterable[_Key], unknown_key: Callable[[], None] = lambda: None) -> None:
        self._keys = tuple(keys)
        self._unknown_key = unknown_key
        self._algorithms = signature_algorithms()

    def __len__(self) -> int:
        return len(self._keys)

    def verify(self, algorithm: str, key_id: str | None, signed: bytes, signature: bytes) -> None:
        """See :class:`oncelog.core.sasl.tokens.VerifySignature`."""
        fitting = [key for key in self._keys if key.fits(algorithm, key_id)][:MAX_TRIED]
        if not fitting:
            self._unknown_key()
            raise InvalidToken("it is signed by a key that is not in the key set")
        check = self._algorithms[algorithm]
        if not any(check.verify(signed, key.public, signature) for key in fitting):
            raise InvalidToken("its signature is wrong")


def read_key_set(document: bytes, unknown_key: Callable[[], None] = lambda: None) -> KeySet:
    """The keys of a document; those that cannot be used are left out. Raises UnusableKeySet, SecurityExtraMissing."""
    if len(document) > MAX_BYTES:
        raise UnusableKeySet(f"the key set has more than {MAX_BYTES} bytes")
    try:
        listed = json.loads(document)["keys"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise UnusableKeySet("the document is not a JSON web key set") from None
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise UnusableKeySet(f"the key set is not a list of at most {MAX_KEYS} keys")
    algorithms = signature_algorithms()
    keys = [key for each in listed if (key := _read_key(each, algorithms)) is not None]
    if not keys:
        raise UnusableKeySet("the key set has no public key of RSA or of an elliptic curve to verify signatures with")
    return KeySet(keys, unknown_key)


def _read_key(jwk: Any, algorithms: dict[str, Algorithm]) -> _Key | None:
    if not isinstance(jwk, dict) or any(name in jwk for name in _PRIVATE) or jwk.get("use", "sig") != "sig":
        return None
    fitting = [name for name in ALGORITHMS if _is_of_kind(name, jwk) and jwk.get("alg", name) == name]
    key_id = jwk.get("kid")
    if not fitting or not (key_id is None or isinstance(key_id, str)):
        return None
    try:
        public: Any = algorithms[fitting[0]].from_jwk(jwk)
    except Exception:  # noqa: BLE001 - whatever a library makes of a key that is none: it is left out
        return None
    if jwk["kty"] == "RSA" and public.key_size not in RSA_BITS:
        return None
    return _Key(key_id, frozenset(fitting), public)


def _is_of_kind(algorithm: str, jwk: dict[str, Any]) -> bool:
    if algorithm in _CURVES:
        return jwk.get("kty") == "EC" and jwk.get("crv") == _CURVES[algorithm]
    return jwk.get("kty") == "RSA"


def signature_algorithms() -> dict[str, Algorithm]:
    """PyJWT's, by name. Raises SecurityExtraMissing."""
    try:
        from jwt.algorithms import get_default_algorithms
    except ImportError:
        raise SecurityExtraMissing from None
    known = get_default_algorithms()
    if any(name not in known for name in ALGORITHMS):  # PyJWT without cryptography
        raise SecurityExtraMissing
    return {name: known[name] for name in ALGORITHMS}
