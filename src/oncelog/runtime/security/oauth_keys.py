"""Keeps the key sets of OAUTHBEARER listeners fresh: read by a worker, at start and each
``…jwks.endpoint.refresh.ms``.

The place is the one that is configured: no redirect is followed, no proxy asked, nothing that a token says is looked at
(CVE-2025-27817). A reading that fails leaves the keys as they are and is repeated, from ``…retry.backoff.ms`` on, twice
as long each time. A token with a key that is unknown has the set read again, once a minute at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from oncelog.base.units import SECOND_MS
from oncelog.node.listeners.token_keys import InvalidToken, KeySetSettings, VerifySignature
from oncelog.runtime.security.key_set import MAX_BYTES, KeySet, UnusableKeySet, read_key_set, signature_algorithms
from oncelog.runtime.workers import Workers

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
