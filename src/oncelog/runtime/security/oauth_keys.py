"""Keeps the key sets of OAUTHBEARER listeners fresh: a worker reads them at start and every
``…jwks.endpoint.refresh.ms``.

Only the configured location is read: redirects, proxies and locations named by tokens are ignored (CVE-2025-27817). A
failed reading keeps the present keys and is retried after ``…retry.backoff.ms``, doubling each time. An unknown key in
a token triggers a reading, at most once a minute.

A key set is JSON (RFC 7517) with public keys of RSA and of the three curves; others are ignored. Only this module
imports PyJWT and cryptography (the extra ``oncelog[security]``) for tokens.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from oncelog.base.units import SECOND_MS
from oncelog.node.listeners.token_keys import ALGORITHMS, InvalidToken, KeySetSettings, VerifySignature
from oncelog.runtime.workers import Workers

if TYPE_CHECKING:
    from jwt.algorithms import Algorithm

MAX_BYTES: Final = 1 << 20
MAX_KEYS: Final = 100
MAX_TRIED: Final = 4
"""Keys tried for a token without a key id; each costs a tenth of a millisecond."""
RSA_BITS: Final = range(2048, 8193)
_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_PRIVATE: Final = ("d", "p", "q", "dp", "dq", "qi", "oth", "k")


class UnusableKeySet(Exception):
    """The document is no key set, or has no usable key; the message says why."""


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
    """The keys of one reading. ``unknown_key`` is called for a token whose key is not among them."""

    def __init__(self, keys: Iterable[_Key], unknown_key: Callable[[], None] = lambda: None) -> None:
        self._keys = tuple(keys)
        self._unknown_key = unknown_key
        self._algorithms = signature_algorithms()

    def __len__(self) -> int:
        return len(self._keys)

    def verify(self, algorithm: str, key_id: str | None, signed: bytes, signature: bytes) -> None:
        fitting = [key for key in self._keys if key.fits(algorithm, key_id)][:MAX_TRIED]
        if not fitting:
            self._unknown_key()
            raise InvalidToken("it is signed by a key that is not in the key set")
        check = self._algorithms[algorithm]
        if not any(check.verify(signed, key.public, signature) for key in fitting):
            raise InvalidToken("its signature is wrong")


def read_key_set(document: bytes, unknown_key: Callable[[], None] = lambda: None) -> KeySet:
    """The usable keys of a document. Raises UnusableKeySet, SecurityExtraMissing."""
    if len(document) > MAX_BYTES:
        raise UnusableKeySet(f"the key set has more than {MAX_BYTES} bytes")
    try:
        listed = json.loads(document)["keys"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise UnusableKeySet("the document is not a JSON web key set") from None
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise UnusableKeySet(f"the key set is not a list of at most {MAX_KEYS} keys")
    algorithms = signature_algorithms()
    keys = [key for jwk in listed if (key := _read_key(jwk, algorithms)) is not None]
    if not keys:
        raise UnusableKeySet("the key set has no public key of RSA or of an elliptic curve to verify signatures with")
    return KeySet(keys, unknown_key)


def _read_key(jwk: Any, algorithms: dict[str, Algorithm]) -> _Key | None:
    # PyJWT reads single keys; its ``PyJWKSet`` would accept secrets and private keys, and let an RSA key without an
    # algorithm verify RS256 only. A secret (``oct``) is never a key, so that no HMAC can be made with a public value.
    if not isinstance(jwk, dict) or any(name in jwk for name in _PRIVATE) or jwk.get("use", "sig") != "sig":
        return None
    # A key is used only with the algorithms of its kind, and with the one that it names.
    fitting = [name for name in ALGORITHMS if _is_of_kind(name, jwk) and jwk.get("alg", name) == name]
    key_id = jwk.get("kid")
    if not fitting or not (key_id is None or isinstance(key_id, str)):
        return None
    try:
        public: Any = algorithms[fitting[0]].from_jwk(jwk)
    except Exception:  # noqa: BLE001 - libraries raise many errors for malformed keys, which are ignored
        return None
    if jwk["kty"] == "RSA" and public.key_size not in RSA_BITS:
        return None
    return _Key(key_id, frozenset(fitting), public)


def _is_of_kind(algorithm: str, jwk: dict[str, Any]) -> bool:
    if algorithm in _CURVES:
        return jwk.get("kty") == "EC" and jwk.get("crv") == _CURVES[algorithm]
    return jwk.get("kty") == "RSA"


def signature_algorithms() -> dict[str, Algorithm]:
    try:
        from jwt.algorithms import get_default_algorithms
    except ImportError:
        raise SecurityExtraMissing from None
    algorithms = get_default_algorithms()
    if any(name not in algorithms for name in ALGORITHMS):  # PyJWT without cryptography
        raise SecurityExtraMissing
    return {name: algorithms[name] for name in ALGORITHMS}


TIMEOUT_S: Final = 10.0
"""Time-out of one reading, including the connection."""
UNKNOWN_KEY_S: Final = 60.0
_LOG: Final = logging.getLogger("oncelog.broker")


class RefreshedKeys:
    """The key set of one location, as last read."""

    def __init__(self, settings: KeySetSettings, loop: asyncio.AbstractEventLoop, workers: Workers) -> None:
        self._settings = settings
        self._loop = loop
        self._workers = workers
        self._keys: KeySet | None = None
        self._failures = 0
        self._timer: asyncio.TimerHandle | None = None
        self._reading = False
        self._stopped = False
        self._unknown_key_read_s = -UNKNOWN_KEY_S
        self.first: asyncio.Future[str | None] = loop.create_future()
        """Done after the first reading: None, or the reason for its failure."""

    def verify(self, algorithm: str, key_id: str | None, signed: bytes, signature: bytes) -> None:
        if self._keys is None:
            raise InvalidToken("the key set could not be read yet")
        self._keys.verify(algorithm, key_id, signed, signature)

    def read(self) -> None:
        """Let a worker read the location, unless a reading is in progress."""
        if self._reading or self._stopped:
            return
        self._reading = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._workers.submit(self._work)

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _work(self) -> Callable[[], None]:
        try:
            keys = read_key_set(fetch(self._settings.url), self._unknown_key)
        except (OSError, http.client.HTTPException, UnusableKeySet) as error:
            reason = str(error) or type(error).__name__
            return lambda: self._failed(reason)
        return lambda: self._read(keys)

    def _read(self, keys: KeySet) -> None:
        self._keys, self._failures = keys, 0
        self._again_after_ms(self._settings.refresh_ms, None)

    def _failed(self, reason: str) -> None:
        _LOG.warning("cannot read the key set of tokens at %s: %s", self._settings.url, reason)
        backoff_ms = min(
            self._settings.retry_backoff_ms << min(self._failures, 30), self._settings.retry_backoff_max_ms
        )
        self._failures += 1
        self._again_after_ms(backoff_ms, reason)

    def _again_after_ms(self, delay_ms: int, reason: str | None) -> None:
        self._reading = False
        if not self.first.done():
            self.first.set_result(reason)
        if not self._stopped:
            self._timer = self._loop.call_later(delay_ms / SECOND_MS, self.read)

    def _unknown_key(self) -> None:
        """Called by the verifying worker."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._read_for_unknown)

    def _read_for_unknown(self) -> None:
        now_s = self._loop.time()
        if now_s - self._unknown_key_read_s >= UNKNOWN_KEY_S:
            self._unknown_key_read_s = now_s
            self.read()


class OAuthKeys:
    def __init__(self, loop: asyncio.AbstractEventLoop, places: Mapping[str, KeySetSettings]) -> None:
        """Does not read yet. Raises SecurityExtraMissing."""
        signature_algorithms()
        self._workers = Workers(loop, 1, "keys")
        self._sets = {name: RefreshedKeys(settings, loop, self._workers) for name, settings in places.items()}

    @property
    def key_sets(self) -> Mapping[str, VerifySignature]:
        return self._sets

    async def start(self) -> str | None:
        """Read all for the first time; returns None or the reason of a failure. A listener without keys refuses tokens
        until they can be read.
        """
        for keys in self._sets.values():
            keys.read()
        reasons = [await keys.first for keys in self._sets.values()]
        return next((reason for reason in reasons if reason is not None), None)

    def stop(self) -> None:
        for keys in self._sets.values():
            keys.stop()
        self._workers.stop()


def fetch(url: str) -> bytes:
    """The document at ``https://…`` or ``file:///…``, read within ``TIMEOUT_S``, with at most one byte more than
    allowed. Raises OSError, HTTPException."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        with Path(unquote(parts.path)).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    if parts.scheme != "https" or parts.hostname is None:
        raise OSError(f"{parts.scheme} URLs are not supported: use https or file")
    path = parts.path or "/"
    deadline_s = time.monotonic() + TIMEOUT_S
    connection = http.client.HTTPSConnection(
        parts.hostname, parts.port, timeout=TIMEOUT_S, context=ssl.create_default_context()
    )
    try:
        target = f"{path}?{parts.query}" if parts.query else path
        connection.request("GET", target, headers={"Accept": "application/json"})
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise OSError(f"it answers with status {response.status}")  # redirects, too
        data = b""
        while len(data) <= MAX_BYTES and (more := response.read1(65536)):
            data += more
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"not read within {TIMEOUT_S:.0f} s")
        return data[: MAX_BYTES + 1]
    finally:
        connection.close()
