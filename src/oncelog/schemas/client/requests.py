"""Requests to a registry: over any of its URLs, with retries, and answers as JSON or as an error."""

from __future__ import annotations

import base64
import http.client
import json
import random
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from oncelog.base.text import shortened
from oncelog.base.units import MIB
from oncelog.schemas.client.errors import (
    NotRegistered,
    RegistryError,
    RegistryRefused,
    RegistryUnavailable,
    UnusableAnswer,
)
from oncelog.schemas.client.http_connections import MAX_ANSWER_BYTES, Answer, AnswerTooLarge, HttpConnections
from oncelog.schemas.client.settings import RegistrySettings

# All requests made here may be repeated: registering the same schema again gives the same id.

_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_HEADERS: Final = {"Accept": f"{_TYPE}, application/vnd.schemaregistry+json, application/json", "User-Agent": "oncelog"}
_BODY_HEADERS: Final = {"Content-Type": _TYPE, "Confluent-Accept-Unknown-Properties": "true"}
_RETRIED: Final = frozenset((408, 425, 429, 500, 502, 503, 504))
_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 5.0
_MOST_SHOWN: Final = 300


class Requests:
    def __init__(
        self,
        settings: RegistrySettings,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._sleep = sleep
        is_secured = any(url.startswith("https:") for url in settings.urls)
        tls = settings.tls_context() if is_secured else None
        self._servers = [
            HttpConnections(url, tls if url.startswith("https:") else None, clock) for url in settings.urls
        ]
        self._preferred = 0  # the URL that answered last
        self._headers = _HEADERS | _authorization(settings)

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        return self._request("GET", path, query, None)

    def post(self, path: str, document: object, query: Mapping[str, str] | None = None) -> Any:
        return self._request("POST", path, query, json.dumps(document).encode())

    def close(self) -> None:
        for server in self._servers:
            server.close()

    def _request(self, method: str, path: str, query: Mapping[str, str] | None, body: bytes | None) -> Any:
        """The answer's JSON. Raises NotRegistered, RegistryRefused, RegistryUnavailable."""
        target = f"{path}?{urlencode(query)}" if query else path
        headers = self._headers if body is None else self._headers | _BODY_HEADERS
        wait_s = _FIRST_WAIT_S
        for left in range(self._settings.retries, -1, -1):
            try:
                return self._over_any_url(method, target, headers, body or b"")
            except _Retry as failure:
                if left == 0:
                    raise failure.error from None
                self._sleep(failure.wait_s or random.uniform(wait_s / 2, wait_s))
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        raise AssertionError

    def _over_any_url(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Any:
        """The answer of the first URL that gives one, beginning with the one that gave the last. Raises _Retry."""
        failure: _Retry | None = None
        first, count = self._preferred, len(self._servers)
        for number in range(first, first + count):
            server = self._servers[number % count]
            try:
                answer = server.exchange(method, target, headers, body, self._settings.timeout_s)
            except ssl.SSLCertVerificationError as error:
                raise RegistryUnavailable(
                    f"registry {server.url}: its certificate is not trusted: {error.verify_message}; ssl.ca.location "
                    "names the file of its authority"
                ) from None
            except AnswerTooLarge:
                limit = MAX_ANSWER_BYTES // MIB
                raise UnusableAnswer(
                    f"registry {server.url}: the answer to {method} {target} is larger than {limit} MiB"
                ) from None
            except (OSError, http.client.HTTPException) as error:
                failure = _Retry(RegistryUnavailable(f"registry {server.url} does not answer: {_reason(error)}"))
                continue
            if answer.status in _RETRIED:
                failure = _Retry(_refusal(answer, server.url, method, target), _seconds(answer.retry_after))
                continue
            self._preferred = number % count
            return _document(answer, server.url, method, target)
        assert failure is not None
        raise failure


class _Retry(Exception):
    """A failure that another try may not have."""

    def __init__(self, error: RegistryError, wait_s: float | None = None) -> None:
        self.error = error
        self.wait_s = wait_s


def _authorization(settings: RegistrySettings) -> dict[str, str]:
    if settings.token is not None:
        return {"Authorization": f"Bearer {settings.token}"}
    if settings.user is None:
        return {}
    login = base64.b64encode(f"{settings.user}:{settings.password}".encode()).decode()
    return {"Authorization": f"Basic {login}"}


def _document(answer: Answer, url: str, method: str, target: str) -> Any:
    if 300 <= answer.status < 400:
        raise UnusableAnswer(f"registry {url} redirects {method} {target}; give the URL of the registry itself")
    if not 200 <= answer.status < 300:
        raise _refusal(answer, url, method, target)
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        raise UnusableAnswer(
            f"registry {url}: the answer to {method} {target} is not JSON; is this the URL of a schema registry?"
        ) from None


def _refusal(answer: Answer, url: str, method: str, target: str) -> RegistryRefused:
    try:
        document = json.loads(answer.body)
        code, text = int(document["error_code"]), str(document["message"])
    except (ValueError, RecursionError, KeyError, TypeError):
        code, text = answer.status, http.client.responses.get(answer.status, "an error")
    message = f"registry {url}: {method} {target}: {shortened(text, _MOST_SHOWN)} ({answer.status}, error {code})"
    # Another 404 says nothing about a schema: the URL may be wrong.
    is_absent = 40400 < code < 40500
    return (NotRegistered if is_absent else RegistryRefused)(message, answer.status, code)


def _seconds(retry_after: str | None) -> float | None:
    if retry_after is None or not retry_after.isascii() or not retry_after.isdigit():
        return None
    return min(float(retry_after[:9]), _LONGEST_WAIT_S)


def _reason(error: Exception) -> str:
    if isinstance(error, http.client.RemoteDisconnected | http.client.IncompleteRead):
        return "it closed the connection"
    if isinstance(error, http.client.HTTPException):
        return "its answer is not HTTP"
    if isinstance(error, TimeoutError):
        return "timed out"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
