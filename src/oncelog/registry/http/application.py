"""The ASGI application of the registry: the sender of a request, its route, and its answer.

1. A body is read only for a known route and user: ``MAX_BODY_BYTES`` within ``BODY_S``, few large ones at a time.
2. Requests of web pages are refused, unless the page's own address is one of this server's: a page of another site
   could otherwise register schemas through the browser of a user. Browsers mark a page's reads only for addresses they
   trust, so a registry without login on a loopback address refuses host names of others (DNS rebinding), too.
3. Every failure is a document with `error_code` and `message`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from oncelog.base.units import KIB, MIB
from oncelog.listening.addresses import is_addressed_to
from oncelog.listening.waiting import source_of
from oncelog.registry.errors import RegistryError
from oncelog.registry.http.call import NOT_FOUND, Call
from oncelog.registry.http.permissions import Permissions
from oncelog.registry.http.routes import Match, MethodNotAllowed, match
from oncelog.registry.service import Registry
from oncelog.web.attempts import Attempts
from oncelog.web.logins import Login

MAX_BODY_BYTES: Final = 4 * MIB
"""A schema of 1 MiB, escaped as JSON text."""
SMALL_BODY_BYTES: Final = 64 * KIB
MAX_LARGE_BODIES: Final = 16
"""Larger bodies that are read and worked on at a time. Each connection may have a small one."""
WAIT_S: Final = 10.0
"""How long a larger body waits for its turn."""
BODY_S: Final = 30.0
MAX_PARAMETERS: Final = 100
V1_JSON: Final = "application/vnd.schemaregistry.v1+json"
_PLAIN_JSON: Final = ("application/vnd.schemaregistry+json", "application/json")
_READ_TYPES: Final = (V1_JSON, *_PLAIN_JSON, "application/octet-stream", "")
_LOG: Final = logging.getLogger("oncelog.registry")


@dataclass(frozen=True, slots=True)
class Access:
    """Logins and permissions of a registry. ``names`` are host names of this server that web pages may have."""

    login: Login
    permissions: Permissions = Permissions()  # noqa: RUF009  # frozen
    names: frozenset[str] = frozenset()
    is_for_this_machine: bool = False
    """True if there is no login and the address is a loopback one."""


class Application:
    def __init__(self, registry: Registry, access: Access) -> None:
        self._registry = registry
        self._access = access
        self._attempts = Attempts()
        self._large_bodies = asyncio.Semaphore(MAX_LARGE_BODIES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except RegistryError as error:
            response = _error(request, error.status, error.code, error.message)
        except MethodNotAllowed as error:
            response = _error(request, 405, 405, "HTTP 405 Method Not Allowed")
            response.headers["Allow"] = str(error)
        except ClientDisconnect:
            return
        except Exception:  # noqa: BLE001  # a bug must not end without an answer
            _LOG.exception("a request failed: %s %r", request.method, scope["path"][:200])
            response = _error(request, 500, 500, "the registry failed; its log says why")
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-store"
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        headers = request.headers
        if not _is_direct(headers, self._access.names):
            return _error(request, 403, 403, "web pages may not use this registry; ask it from a program")
        host = headers.get("host", "localhost")
        if self._access.is_for_this_machine and not is_addressed_to(host, self._access.names):
            return _error(request, 403, 403, f"{host[:80]!r} is no name of this registry; if it should be, give --name")
        if request.scope["path"] == "/health":
            is_reading = self._registry.is_reading
            return _json(request, {"status": "ok" if is_reading else "failed"}, 200 if is_reading else 503)
        user = await self._user(request)
        if user is None:
            return self._unauthorized(request)
        path: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
        route = match(request.method, path.partition(b"?")[0])
        if route is None:
            raise RegistryError(404, NOT_FOUND)
        answer = await self._handled(request, route, user)
        if answer is None:
            return Response(status_code=204)
        if isinstance(answer, str):
            return Response(answer.encode("utf-8", "replace"), media_type=_media_type(headers))
        if isinstance(answer, Iterator):
            return StreamingResponse(_streamed(answer), media_type=_media_type(headers))
        return _json(request, answer)

    async def _handled(self, request: Request, route: Match, user: str) -> object:
        if request.method not in ("POST", "PUT"):
            return await route.handler(self._call(request, route, user, b""))
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in _READ_TYPES:
            raise RegistryError(415, f"the content type {kind[:80]!r} is not read here; send {V1_JSON}")
        if _declared_bytes(request.headers) <= SMALL_BODY_BYTES:
            return await route.handler(self._call(request, route, user, await _read(request)))
        try:
            async with asyncio.timeout(WAIT_S):
                await self._large_bodies.acquire()
        except TimeoutError:
            message = f"{MAX_LARGE_BODIES} large requests are worked on; try again in a moment"
            raise RegistryError(503, message) from None
        try:
            # Until it is answered: as Python's values a body takes many times its bytes.
            return await route.handler(self._call(request, route, user, await _read(request)))
        finally:
            self._large_bodies.release()

    def _call(self, request: Request, route: Match, user: str, body: bytes) -> Call:
        text = request.scope["query_string"].decode("latin-1")
        try:
            query = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
        except ValueError:
            raise RegistryError(400, f"a request has at most {MAX_PARAMETERS} parameters") from None
        call = Call(self._registry, user, self._access.permissions, route.parameters, query, body)
        call.context = route.context
        return call

    async def _user(self, request: Request) -> str | None:
        login, headers = self._access.login, request.headers
        if not login.header:
            return login.user_of(headers)
        source = source_of("" if request.client is None else request.client.host)
        if not await self._attempts.wait_turn(source):
            raise RegistryError(429, "too many wrong passwords or tokens came from your address; wait a moment")
        if len(headers.getlist(login.header)) > 1:
            return None
        user = login.user_of(headers)
        if user is None and login.header in headers:
            self._attempts.count_failure(source)
        return user

    def _unauthorized(self, request: Request) -> Response:
        response = _error(request, 401, 401, "Unauthorized")
        response.headers["WWW-Authenticate"] = self._access.login.challenge or 'Bearer realm="oncelog"'
        return response


def _declared_bytes(headers: Headers) -> int:
    """The size of the body; for a chunked one the most that is read."""
    # A chunked body may have a length as well, which then means nothing.
    length = "" if "transfer-encoding" in headers else headers.get("content-length", "")
    return int(length) if length.isdigit() and len(length) < 12 else MAX_BODY_BYTES


async def _read(request: Request) -> bytes:
    try:
        async with asyncio.timeout(BODY_S):
            return await _read_chunks(request)
    except TimeoutError:
        raise RegistryError(408, f"the body did not arrive within {BODY_S:g} s") from None


async def _read_chunks(request: Request) -> bytes:
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise RegistryError(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def _is_direct(headers: Headers, names: frozenset[str]) -> bool:
    """False for the request of a web page that does not come from this server."""
    if "origin" not in headers and headers.get("sec-fetch-site", "none") == "none":
        return True
    host = headers.get("host", "")
    is_own = headers.get("sec-fetch-site", "same-origin") == "same-origin"
    origin = headers.get("origin")
    # Compared as a text: an origin may be no address at all.
    if origin is not None and origin.lower().partition("://")[2] != host.lower():
        return False
    return is_own and is_addressed_to(host, names)


def _media_type(headers: Headers) -> str:
    accepted = headers.get("accept", "").lower()
    if V1_JSON in accepted or "*/*" in accepted or not accepted:
        return V1_JSON
    return next((kind for kind in _PLAIN_JSON if kind in accepted), V1_JSON)


def _encoded(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def _json(request: Request, document: object, status: int = 200) -> Response:
    return Response(_encoded(document), status, media_type=_media_type(request.headers))


def _error(request: Request, status: int, code: int, message: str) -> Response:
    response = _json(request, {"error_code": code, "message": message}, status)
    if status in (429, 503):
        response.headers["Retry-After"] = "5"
    if request.method in ("POST", "PUT") and status in (401, 403, 408, 413, 415, 503):
        response.headers["Connection"] = "close"  # Of a body that was not read.
    return response


async def _streamed(documents: Iterator[object]) -> AsyncIterator[bytes]:
    """A list, one item after the other: all of them together may be larger than memory should hold."""
    separator = b"["
    for document in documents:
        yield separator + _encoded(document)
        separator = b","
    yield b"[]" if separator == b"[" else b"]"


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        kind = "startup" if message["type"] == "lifespan.startup" else "shutdown"
        await send({"type": f"lifespan.{kind}.complete"})
        if kind == "shutdown":
            return
