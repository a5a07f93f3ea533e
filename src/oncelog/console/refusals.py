"""Answers for those who are not let in, or asked for what cannot be: one page and one JSON document, with a reason."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from oncelog.admin.transactions.audit_trail import Audit, entry_of


class Refusals:
    """Makes these answers; refused changes are noted in the audit log where there is one."""

    def __init__(self, templates: Environment, audit: Audit) -> None:
        self._templates = templates
        self._audit = audit

    def of(self, request: Request, status: int, reason: str, **shown: Any) -> Response:
        """An answer with a status and a sentence."""
        title = HTTPStatus(status).phrase
        if request.url.path.endswith(".json"):
            return JSONResponse({"error": reason, "status": status}, status)
        template = self._templates.get_template("refused.html")
        page = {"title": title, "reason": reason, "live": False, "path": request.url.path} | shown
        return HTMLResponse(template.render(**page), status)

    def login(self, request: Request, wrong: str) -> Response:
        """The form for a token."""
        if request.url.path.endswith(".json"):
            return JSONResponse({"error": "a token is needed: Authorization: Bearer …", "status": 401}, 401)
        return HTMLResponse(self._templates.get_template("login.html").render(title="Log in", wrong=wrong), 401)

    def note(self, request: Request, user: str, reason: str) -> None:
        """A line about a change that was refused."""
        client = request.client
        where = "" if client is None else f"{client.host}:{client.port}"
        self._audit(entry_of("console", "refused", by=user, address=where, path=request.url.path[:200], error=reason))
