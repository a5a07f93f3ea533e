"""Keeps the key sets of OAUTHBEARER listeners fresh: read by a worker, at start and each
``…jwks.endpoint.refresh.ms``.

The place is the one that is configured: no redirect is followed, no proxy asked, nothing that a token says is looked at
(CVE-2025-27817). A reading that fails leaves the keys as they are and is repeated, from ``…retry.backoff.ms`` on, twice
as long each time. A token with a key that is unknown has the set read again, once a minute at most.

A key set is JSON (RFC 7517): public keys of RSA (2,048 to 8,192 bits) and of the three curves, nothing else; a key is
used with the algorithms of its kind alone, and with the one that it names. A secret (``oct``) is never a key here, so
that no HMAC can be made with what everybody may read. PyJWT reads each key; its ``PyJWKSet`` takes secrets and private
keys too, and lets an RSA key that names no algorithm verify RS256 only. No other module imports PyJWT and cryptography
(the extra ``oncelog[security]``) for tokens.
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


TIMEOUT_S: Final = 10.0
"""The time-out of one reading, to connect and to read."""
UNKNOWN_KEY_S: Final = 60.0
_LOG: Final = logging.getLogger("oncelog.broker")


class RefreshedKeys:
    """The key set of one place, as last read."""

    def __init__(self, settings: KeySetSettings, loop: asyncio.AbstractEventLoop, workers: Workers) -> None:
        self._settings = settings
        self._loop = loop
        self._workers = workers
        self._keys: KeySet | None = None
        self._failures = 0
        self._timer: asyncio.TimerHandle | None = None
        self._reading = False
        self._stopped = False
        self._asked_for_unknown_s = -UNKNOWN_KEY_S
        self.first: asyncio.Future[str | None] = loop.create_future()
        """Done when the place was read for the first time: None, or why it could not be."""

    def verify(self, algorithm: str, key_id: str | None, signed: bytes, signature: bytes) -> None:
        """See :class:`oncelog.core.sasl.tokens.VerifySignature`."""
        if self._keys is None:
            raise InvalidToken("the key set could not be read yet")
        self._keys.verify(algorithm, key_id, signed, signature)

    def read(self) -> None:
        """Have a worker read the place, unless one does."""
        if self._reading or self._stopped:
            return
        self._reading = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._workers.submit(self._work)

    def stop(self) -> None:
        """Read no more."""
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
        """Called by the worker that verifies."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._read_for_unknown)

    def _read_for_unknown(self) -> None:
        now_s = self._loop.time()
        if now_s - self._asked_for_unknown_s >= UNKNOWN_KEY_S:
            self._asked_for_unknown_s = now_s
            self.read()


class OAuthKeys:
    """The key sets of all listeners that take tokens."""

    def __init__(self, loop: asyncio.AbstractEventLoop, places: Mapping[str, KeySetSettings]) -> None:
        """Reads nothing yet. Raises SecurityExtraMissing."""
        signature_algorithms()
        self._workers = Workers(loop, 1, "keys")
        self._sets = {name: RefreshedKeys(settings, loop, self._workers) for name, settings in places.items()}

    @property
    def key_sets(self) -> Mapping[str, VerifySignature]:
        """Sets of keys by the name of the listener."""
        return self._sets

    async def start(self) -> str | None:
        """Read all for the first time; None, or why one could not be read. Without its keys a listener lets nobody
        in, until they can be read."""
        for keys in self._sets.values():
            keys.read()
        reasons = [await keys.first for keys in self._sets.values()]
        return next((reason for reason in reasons if reason is not None), None)

    def stop(self) -> None:
        """Read no more, and wait for the worker."""
        for keys in self._sets.values():
            keys.stop()
        self._workers.stop()


def fetch(url: str) -> bytes:
    """The document at ``https://…`` or ``file:///…``, within ``TIMEOUT_S``; one byte more than allowed at most. Raises
    OSError, HTTPException."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        with Path(unquote(parts.path)).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    if parts.scheme != "https" or parts.hostname is None:
        raise OSError(f"{parts.scheme} is not read")
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
