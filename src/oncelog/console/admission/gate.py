"""The gate: the middleware that identifies the user of every request and decides whether it may change anything.

A request that passes all checks gets a :class:`Permit`. Forms below ``WORK_PREFIX`` make the console itself work (run
an audit, show a report). They pass the other checks, are accepted even if changes are not allowed, and never get a
Permit; so no handler of such a path can change a cluster. A route cannot choose to bypass the gate: the only paths
listed here are those of the login and of static files.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oncelog.console.admission.forms import MAX_FORM_BYTES, MAX_UPLOAD_BYTES, Form, read_form
from oncelog.console.admission.refusals import Refusals, form_address, is_local, own_address, path_in_cluster
from oncelog.console.admission.sessions import Session, cookie_of, form_token, is_form_token, new_session, session_of
from oncelog.console.settings import Settings, may_be_addressed_as
from oncelog.listening.waiting import source_of
from oncelog.web.attempts import Attempts

READING: Final = frozenset({"GET", "HEAD"})
LOGIN_PATH: Final = "/login"
STATIC_PREFIX: Final = "/static/"
WORK_PREFIX: Final = "/tasks/"
UPLOAD_PATIENCE_S: Final = 60.0
FORM_PATIENCE_S: Final = 10.0
# Headers that decide something. With two of them a proxy could judge by one and the console by the other.
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

ENDED: Final = "Your session has ended. Log in again to return to this page."
ENDED_FORM: Final = (
    "Your session had ended when the form was sent: nothing was done. Log in again to return to its page."
)
OLD_FORM: Final = (
    "this form belongs to a session that has ended or to an earlier start of the console; nothing was done. "
    "Reload its page and try again"
)
CONTENT_SECURITY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class Permit:
    """The right of one request to change the cluster; created by the gate alone. ``address`` is the sender's."""

    user: str
    address: str


@dataclass(frozen=True, slots=True)
class Sender:
    """The user and address of a request, without any right."""

    user: str
    address: str


@dataclass(frozen=True, slots=True)
class Visitor:
    """The user of a request, as pages see it. ``permit`` is set for an allowed change only, ``form`` for work too."""

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
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"the console does not serve {scope['type']} connections")
        request = Request(scope, receive)
        answer, session, is_new = await self._admit(request)

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._secure(MutableHeaders(scope=message), request, session if is_new else None)
            await send(message)

        await (self._app if answer is None else answer)(scope, receive, secured)

    async def _admit(self, request: Request) -> tuple[Response | None, Session | None, bool]:
        """The answer to a rejected request, or None; the session; and True if the browser lacks its cookie."""
        headers = request.headers
        repeated = [name for name in (*_ONCE, self._settings.login.header) if len(headers.getlist(name)) > 1]
        if repeated:
            return self._refused_early(request, 400, f"the request has two {repeated[0]} headers; send one")
        if "content-length" in headers and "transfer-encoding" in headers:
            return self._refused_early(request, 400, "a request cannot have both Content-Length and Transfer-Encoding")
        host = headers.get("host", "")
        # Against DNS rebinding.
        if not may_be_addressed_as(self._settings, host):
            text = f"{host!r} is not a name of this console; to allow it, start the console with --name"
            return self._refused_early(request, 421, text)
        if request.method in READING and is_foreign_fetch(headers):
            return self._refused_early(request, 403, "another site's page tried to load this; follow a link instead")
        if request.scope["path"].startswith(STATIC_PREFIX) and request.method in READING:
            return None, None, False
        now_s = int(time.time())
        login = self._settings.login
        cookie_session = session_of(self._cookie_value(headers), self._settings.secret, now_s)
        source = _source(request, cookie_session)
        is_attempt = login.header == "authorization" and "authorization" in headers
        if is_attempt and not await self._attempts.wait_turn(source):
            return self._too_many_attempts(request)
        user = login.user_of(headers)
        if is_attempt and user is None:
            self._attempts.count_failure(source)
        if user is None and login.by_form and cookie_session is not None:
            user = cookie_session.user
        if user is None or (login.by_form and request.scope["path"] == LOGIN_PATH):  # Another tab may have logged in.
            return await self._log_in(request, now_s, has_ended=user is None and self._cookie in request.cookies)
        is_new = cookie_session is None or cookie_session.user != user
        session = new_session(user, now_s) if cookie_session is None or cookie_session.user != user else cookie_session
        token = form_token(session, self._settings.secret)
        visitor = Visitor(user, session, token)
        if request.method not in READING:
            refusal, form = await self._refusal(request, None if is_new else session)
            if refusal is not None:
                self._refusals.note(request, user, refusal[1])
                return self._refusals.of(request, *refusal), session, is_new
            permit = None if is_work(request) else Permit(user, address_of(request.scope))
            visitor = Visitor(user, session, token, permit, form)
        request.scope["visitor"] = visitor
        return None, session, is_new

    def _refused_early(self, request: Request, status: int, text: str) -> tuple[Response, None, bool]:
        if request.method not in READING:
            self._refusals.note(request, "", text)
        return self._refusals.of(request, status, text), None, False

    def _too_many_attempts(self, request: Request) -> tuple[Response, None, bool]:
        refused = self._refusals.of(
            request, 429, "too many wrong passwords or tokens came from your address; wait a moment"
        )
        refused.headers["Retry-After"] = "10"
        return refused, None, False

    def _cookie_value(self, headers: Headers) -> str:
        """The session's cookie. Empty if it is missing, or sent twice: another host of the domain can set one."""
        cookies = (pair.strip().partition("=") for pair in headers.get("cookie", "").split(";"))
        values = [value for name, _, value in cookies if name == self._cookie]
        return values[0] if len(values) == 1 else ""

    async def _refusal(self, request: Request, session: Session | None) -> tuple[tuple[int, str] | None, Form]:
        """The single authorisation point: status and reason for a rejected change, or None and the form."""
        works = is_work(request)
        if not self._settings.allow_changes and not works:
            return (403, "this console is read-only; start it with --allow-changes to make changes"), {}
        if request.method != "POST":
            return (405, f"{request.method} is not supported here"), {}
        if not from_own_page(request.headers):
            return (403, "this form was sent by another site's page; nothing was done"), {}
        form = await self._form(request, may_upload=works and session is not None)
        if form is None:
            largest = MAX_UPLOAD_BYTES if works else MAX_FORM_BYTES
            return (413, f"the body is not a form, has too many fields, or is larger than {largest} bytes"), {}
        token = form.get("token", ("",))[0]
        if session is None or not is_form_token(token, session, self._settings.secret):
            return (403, OLD_FORM), {}
        return None, form

    async def _form(self, request: Request, *, may_upload: bool) -> Form | None:
        """The request's form; None if it does not arrive in time. Uploads are large: one is read at a time."""
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
            self._refusals.note(request, "", "the request has no valid login")
        if login.challenge is not None:
            response = self._refusals.of(request, 401, "a user name and password are required")
            response.headers["WWW-Authenticate"] = login.challenge
            return response, None, False
        if not login.by_form:
            return self._refusals.of(request, 401, "the proxy in front did not send your user name"), None, False
        is_login, is_read = request.scope["path"] == LOGIN_PATH, request.method in READING
        return_to = "/" if is_login else own_address(request) if is_read else form_address(request) or "/"
        message = ""
        if has_ended:
            message = ENDED if is_read or is_login else ENDED_FORM
        if request.method == "POST" and is_login and from_own_page(request.headers):
            source = _source(request, None)
            form = await self._form(request, may_upload=False) or {}
            if not await self._attempts.wait_turn(source):
                return self._too_many_attempts(request)
            user = login.user_by_token(form.get("secret", ("",))[0])
            requested = form.get("return_to", ("/",))[0]
            return_to = requested if is_local(requested) else "/"
            if user is not None:
                return RedirectResponse(return_to, 303), new_session(user, now_s), True
            self._attempts.count_failure(source)
            self._refusals.note(request, "", "a wrong token")
            message = "Wrong token."
        return self._refusals.login(request, message, return_to), None, False

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
    """True for a form that makes the console work and changes no cluster."""
    return request.method == "POST" and path_in_cluster(request.scope["path"]).startswith(WORK_PREFIX)


def address_of(scope: Scope) -> str:
    client = scope.get("client")
    return "" if client is None else f"{client[0]}:{client[1]}"


def _source(request: Request, session: Session | None) -> str:
    if session is not None:
        return f"user {session.user}"
    return source_of("" if request.client is None else request.client.host)


def is_foreign_fetch(headers: Headers) -> bool:
    """True if the browser reports that another site's page fetches or embeds this. Such a page cannot read the answer,
    but could make this console search, tail and query the cluster. Following a link does not count."""
    if headers.get("sec-fetch-site", "none") in ("same-origin", "none"):
        return False
    is_navigation = headers.get("sec-fetch-mode") == "navigate"
    return not is_navigation or headers.get("sec-fetch-dest", "document") != "document"


def from_own_page(headers: Headers) -> bool:
    """False if the browser reports that another site's page sent this. Without such headers the token decides."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2].lower() == headers.get("host", "").lower()
