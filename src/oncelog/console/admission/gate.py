"""The gate: every request passes it, and it alone says who sent it and whether it may change anything.

In this order: no header that decides something comes twice; the Host header names this console (DNS rebinding); another
site's page has not fetched this behind its reader's back; somebody is logged in, and has not tried many wrong passwords
just now; and for every method other than GET and HEAD, whatever the path: changes are allowed, the form is small, it
comes from this console's own pages (Origin, Sec-Fetch-Site) and carries the token of its session. Then, and only then,
the request has a :class:`Permit`.

Forms below ``WORK_PREFIX`` make the console itself work (run an audit, show a report) and change no cluster. They come
in where changes are not allowed, too, through all the other checks, and never get a Permit: whatever is behind such a
path, it cannot call what changes a cluster.

The rule: a route cannot choose to be let through. There is no list of paths here but that of the login itself.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oncelog.console.admission.attempts import Attempts
from oncelog.console.admission.forms import LARGEST_FORM, LARGEST_UPLOAD, Form, read_form
from oncelog.console.admission.refusals import Refusals, form_address, is_local, own_address
from oncelog.console.admission.sessions import Session, cookie_of, form_token, is_form_token, new_session, session_of
from oncelog.console.settings import Settings, may_be_addressed_as
from oncelog.listening.waiting import source_of

READING: Final = frozenset({"GET", "HEAD"})
LOGIN_PATH: Final = "/login"
STATIC_PREFIX: Final = "/static/"
WORK_PREFIX: Final = "/tasks/"
UPLOAD_PATIENCE_S: Final = 60.0
FORM_PATIENCE_S: Final = 10.0
_ONCE: Final = (
    "host",
    "authorization",
    "cookie",
    "origin",
    "referer",
    "content-type",
    "content-length",
    "transfer-encoding",
    "sec-fetch-site",
    "sec-fetch-mode",
    "sec-fetch-dest",
)
"""Headers that decide something. Of two of them a proxy in front may have judged the one, and the console the other."""
ENDED: Final = "Your session has ended. Log in again, and you come back to this page."
ENDED_FORM: Final = (
    "Your session had ended when the form was sent: nothing was done. Log in again, and you come back to its page."
)
OLD_FORM: Final = (
    "this form is older than the console, which was started again, or of a session that has ended; nothing was done. "
    "Load its page again and repeat it"
)
CONTENT_SECURITY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class Permit:
    """The right of one request to change the cluster; made by the gate alone. ``address``: where it came from."""

    user: str
    address: str


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of a request, and the address it came from; no right to anything."""

    user: str
    address: str


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a request, as pages see them. ``permit`` is for an allowed change alone, ``form`` for work too."""

    user: str
    session: Session
    form_token: str
    permit: Permit | None = None
    form: Form | None = None


class Gate:
    def __init__(self, app: ASGIApp, settings: Settings, refusals: Refusals) -> None:
        self._app = app
        self._settings = settings
        self._refusals = refusals
        self._upload = asyncio.Lock()
        self._attempts = Attempts()
        # Browsers send cookies to every port of a host: with its port in the name two consoles leave each other alone.
        self._cookie = f"{'__Host-' if settings.has_tls else ''}oncelog-console-{settings.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"the console has no {scope['type']}")
        request = Request(scope, receive)
        answer, session, is_new = await self._admit(request)

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._secure(MutableHeaders(scope=message), request, session if is_new else None)
            await send(message)

        await (self._app if answer is None else answer)(scope, receive, secured)

    async def _admit(self, request: Request) -> tuple[Response | None, Session | None, bool]:
        """An answer for who is not let in; the session, and whether the browser does not have it yet."""
        headers = request.headers
        twice = [name for name in (*_ONCE, self._settings.login.header) if len(headers.getlist(name)) > 1]
        if twice:
            return self._refused_early(request, 400, f"there are two headers {twice[0]}; one of them is wrong")
        if "content-length" in headers and "transfer-encoding" in headers:
            return self._refused_early(request, 400, "Content-Length and Transfer-Encoding do not go together")
        host = headers.get("host", "")
        if not may_be_addressed_as(self._settings, host):
            text = f"{host!r} is not a name of this console; if it should be one, start it with --name"
            return self._refused_early(request, 421, text)
        if request.method in READING and is_foreign_fetch(headers):
            return self._refused_early(request, 403, "another site's page has asked for this; follow a link instead")
        if request.scope["path"].startswith(STATIC_PREFIX) and request.method in READING:
            return None, None, False
        now_s = int(time.time())
        login = self._settings.login
        known = session_of(self._cookie_value(headers), self._settings.secret, now_s)
        source = _source(request, known)
        is_attempt = login.header == "authorization" and "authorization" in headers
        if is_attempt and not await self._attempts.may_try(source):
            return self._too_many_attempts(request)
        user = login.user_of(headers)
        if is_attempt and user is None:
            self._attempts.was_wrong(source)
        if user is None and login.by_form and known is not None:
            user = known.user
        if user is None or (login.by_form and request.scope["path"] == LOGIN_PATH):  # Another tab may have logged in.
            return await self._log_in(request, now_s, has_ended=user is None and self._cookie in request.cookies)
        is_new = known is None or known.user != user
        session = new_session(user, now_s) if known is None or known.user != user else known
        token = form_token(session, self._settings.secret)
        visitor = Visitor(user, session, token)
        if request.method not in READING:
            refused, form = await self._refusal(request, None if is_new else session)
            if refused is not None:
                self._refusals.note(request, user, refused[1])
                return self._refusals.of(request, *refused), session, is_new
            permit = None if is_work(request) else Permit(user, address_of(request.scope))
            visitor = Visitor(user, session, token, permit, form)
        request.scope["visitor"] = visitor
        return None, session, is_new

    def _refused_early(self, request: Request, status: int, text: str) -> tuple[Response, None, bool]:
        """The answer to a request that is refused before anybody knows who sent it."""
        if request.method not in READING:
            self._refusals.note(request, "", text)
        return self._refusals.of(request, status, text), None, False

    def _too_many_attempts(self, request: Request) -> tuple[Response, None, bool]:
        refused = self._refusals.of(request, 429, "too many wrong passwords or tokens came from there; wait a moment")
        refused.headers["Retry-After"] = "10"
        return refused, None, False

    def _cookie_value(self, headers: Headers) -> str:
        """The session's cookie; empty where there is none, or are two: another host of the domain can set one."""
        pairs = (pair.strip().partition("=") for pair in headers.get("cookie", "").split(";"))
        values = [value for name, _, value in pairs if name == self._cookie]
        return values[0] if len(values) == 1 else ""

    async def _refusal(self, request: Request, session: Session | None) -> tuple[tuple[int, str] | None, Form]:
        """The one authorisation point: status and reason for a change that is refused, or None and its form."""
        works = is_work(request)
        if not self._settings.allow_changes and not works:
            return (403, "this console only reads; start it with --allow-changes to change things here"), {}
        if request.method != "POST":
            return (405, f"{request.method} is not used here"), {}
        if not from_own_page(request.headers):
            return (403, "this form was sent by another site's page; nothing was done"), {}
        form = await self._form(request, may_upload=works and session is not None)
        if form is None:
            largest = LARGEST_UPLOAD if works else LARGEST_FORM
            return (413, f"a form of more than {largest} bytes or too many fields, or no form"), {}
        token = form.get("token", ("",))[0]
        if session is None or not is_form_token(token, session, self._settings.secret):
            return (403, OLD_FORM), {}
        return None, form

    async def _form(self, request: Request, *, may_upload: bool) -> Form | None:
        """The request's form, None if it does not come in time; uploads, which are large, one after the other."""
        try:
            if not may_upload:
                async with asyncio.timeout(FORM_PATIENCE_S):
                    return await read_form(request)
            async with asyncio.timeout(UPLOAD_PATIENCE_S), self._upload:
                return await read_form(request, may_upload=True)
        except TimeoutError:
            return None

    async def _log_in(self, request: Request, now_s: int, *, has_ended: bool) -> tuple[Response, Session | None, bool]:
        login = self._settings.login
        if "authorization" in request.headers:
            self._refusals.note(request, "", "a wrong name, password or token")
        elif request.method not in READING and request.scope["path"] != LOGIN_PATH:
            self._refusals.note(request, "", "nobody is logged in")
        if login.challenge is not None:
            refused = self._refusals.of(request, 401, "name and password are needed")
            refused.headers["WWW-Authenticate"] = login.challenge
            return refused, None, False
        if not login.by_form:
            return self._refusals.of(request, 401, "the proxy in front has not said who you are"), None, False
        is_login, reads = request.scope["path"] == LOGIN_PATH, request.method in READING
        wanted = "/" if is_login else own_address(request) if reads else form_address(request) or "/"
        wrong = ""
        if has_ended:
            wrong = ENDED if reads or is_login else ENDED_FORM
        if request.method == "POST" and is_login and from_own_page(request.headers):
            source = _source(request, None)
            form = await self._form(request, may_upload=False) or {}
            if not await self._attempts.may_try(source):
                return self._too_many_attempts(request)
            user = login.user_by_token(form.get("secret", ("",))[0])
            named = form.get("wanted", ("/",))[0]
            wanted = named if is_local(named) else "/"
            if user is not None:
                return RedirectResponse(wanted, 303), new_session(user, now_s), True
            self._attempts.was_wrong(source)
            self._refusals.note(request, "", "a wrong token")
            wrong = "That token is wrong."
        return self._refusals.login(request, wrong, wanted), None, False

    def _secure(self, headers: MutableHeaders, request: Request, session: Session | None) -> None:
        headers["Content-Security-Policy"] = CONTENT_SECURITY
        headers["X-Content-Type-Options"] = "nosniff"
        headers["Referrer-Policy"] = "same-origin"
        headers["Cross-Origin-Opener-Policy"] = "same-origin"
        headers["Cross-Origin-Resource-Policy"] = "same-origin"
        headers["Permissions-Policy"] = "camera=(), geolocation=(), microphone=()"
        headers.setdefault("Cache-Control", "no-store")
        if self._settings.has_tls:
            headers["Strict-Transport-Security"] = "max-age=31536000"
        if session is not None:
            secure = "; Secure" if self._settings.has_tls else ""
            value = cookie_of(session, self._settings.secret)
            headers.append("Set-Cookie", f"{self._cookie}={value}; Path=/; HttpOnly; SameSite=Lax{secure}")


def is_work(request: Request) -> bool:
    """True for a form that makes the console work, and cannot change a cluster."""
    return request.method == "POST" and request.scope["path"].startswith(WORK_PREFIX)


def address_of(scope: Scope) -> str:
    client = scope.get("client")
    return "" if client is None else f"{client[0]}:{client[1]}"


def _source(request: Request, session: Session | None) -> str:
    """The source of an attempt to log in: the address it came from, or the user of a session."""
    if session is not None:
        return f"user {session.user}"
    return source_of("" if request.client is None else request.client.host)


def is_foreign_fetch(headers: Headers) -> bool:
    """True if a browser says that another site's page fetches this, or shows it within itself: such a page cannot read
    the answer, but could have this console search, tail and ask the cluster. Following a link is no fetch."""
    if headers.get("sec-fetch-site", "none") in ("same-origin", "none"):
        return False
    is_navigation = headers.get("sec-fetch-mode") == "navigate"
    return not is_navigation or headers.get("sec-fetch-dest", "document") != "document"


def from_own_page(headers: Headers) -> bool:
    """False if a browser says that another site's page sent this. What says nothing still needs a session's token."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
