"""Responses to rejected and failed requests: one HTML page and one JSON document, each with a reason."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from oncelog.admin.transactions.audit_trail import Audit, entry_of
from oncelog.console.admission.audit_lines import SECRET_FIELDS, console_audit
from oncelog.console.admission.error_words import words_of

MAX_NOTED_PER_MINUTE: Final = 100
_MENDABLE: Final = (400, 404, 502)  # Statuses of a wrong value, which another one may mend.
_IN_CLUSTER: Final = re.compile(r"/c/([^/]+)(?=/)")


class Refusals:
    def __init__(
        self,
        templates: Environment,
        audit: Audit,
        now_s: Callable[[], float] = time.monotonic,
        by_cluster: Mapping[str, Environment] = MappingProxyType({}),
    ) -> None:
        """``by_cluster`` has the templates of each of several clusters."""
        self._templates = templates
        self._by_cluster = by_cluster
        self._audit = audit
        self._now_s = now_s
        self._minute = 0
        self._noted = 0

    def of(
        self, request: Request, status: int, reason: str, error: Exception | None = None, *, live: bool = False
    ) -> Response:
        """A response with a status and a one-sentence reason."""
        if request.url.path.endswith(".json"):
            return JSONResponse({"error": reason, "status": status}, status)
        templates = self._by_cluster.get(self._cluster_of(request), self._templates)
        template = templates.get_template("refused.html")
        path = request.url.path.removeprefix(str(templates.globals["prefix"]))
        own = {
            "path": path,
            "own_address": own_address(request),
            "back": form_address(request),
        }
        fields = dict(request.query_params)
        words = words_of(status, error, path, fields)
        page = {"title": words.title, "words": words, "reason": reason, "status": status, "live": live} | own
        has_secret = any(name in fields for name in SECRET_FIELDS)
        page["fields"] = fields if status in _MENDABLE and request.method == "GET" and not has_secret else {}
        if has_secret:
            page["own_address"] = request.url.path
        return HTMLResponse(template.render(**page), status)

    def login(self, request: Request, wrong: str, return_to: str) -> Response:
        """The token form. ``return_to`` is the address it returns to."""
        if request.url.path.endswith(".json"):
            return JSONResponse({"error": "a token is required: Authorization: Bearer …", "status": 401}, 401)
        return HTMLResponse(
            self._templates.get_template("login.html").render(title="Log in", wrong=wrong, return_to=return_to), 401
        )

    def note(self, request: Request, user: str, reason: str, named: Mapping[str, str] | None = None) -> None:
        """Write an audit line about a rejected change, run or login; at most ``MAX_NOTED_PER_MINUTE``."""
        minute = int(self._now_s()) // 60
        self._noted = self._noted + 1 if minute == self._minute else 1
        self._minute = minute
        if self._noted > MAX_NOTED_PER_MINUTE:
            return
        client = request.client
        address = "" if client is None else f"{client.host}:{client.port}"
        truncation = {"more_this_minute": "not written"} if self._noted == MAX_NOTED_PER_MINUTE else {}
        path = request.url.path[:200]
        cluster = self._cluster_of(request)
        details = {**({"cluster": cluster} if cluster else {}), "path": path, **(named or {})}
        details |= {"error": reason, **truncation}
        console_audit(self._audit, user, address)(entry_of("console", "refused", **details))

    def _cluster_of(self, request: Request) -> str:
        # Before routing: the path alone tells the cluster.
        in_cluster = _IN_CLUSTER.match(request.url.path)
        return in_cluster[1] if in_cluster is not None and in_cluster[1] in self._by_cluster else ""


def path_in_cluster(path: str) -> str:
    """The path without the start that names one of several clusters."""
    return _IN_CLUSTER.sub("", path, count=1) if path.startswith("/c/") else path


def form_address(request: Request) -> str | None:
    """The address of the page that sent a form; None unless it is a page of this console."""
    if request.method != "POST":
        return None
    try:
        sender = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return None
    if sender.netloc.lower() != request.headers.get("host", "").lower() or not is_local(sender.path):
        return None
    return sender.path + (f"?{sender.query}" if sender.query else "")


def is_local(address: str) -> bool:
    """True for an address within this console, which no browser takes for another host's."""
    return address.startswith("/") and address[1:2] not in ("/", "\\") and address.isprintable()


def own_address(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")
