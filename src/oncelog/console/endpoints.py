"""Endpoints of pages, actions, forms and downloads: from a request that the gate let through to its answer."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse

from oncelog.admin.transactions.audit_trail import no_audit
from oncelog.base.notation.json_values import to_json
from oncelog.client.blocking.client import Client
from oncelog.client.errors import ClientError
from oncelog.console.admission.audit_lines import naming
from oncelog.console.admission.gate import Permit, Sender, Visitor, address_of
from oncelog.console.admission.refusals import own_address
from oncelog.console.cluster.access import ClusterSlow
from oncelog.console.cluster.statuses import status_of
from oncelog.console.page import Action, Asked, LocalPage, Page, Work
from oncelog.console.query import BadQuery, Query
from oncelog.console.records.large_json import LargeBytes, json_pieces
from oncelog.console.services import Parts

CHANGE_PATIENCE_S: Final = 90.0
"""A change waits longer than a page: markers have to be written, and its outcome is worth knowing."""


class Endpoints:
    """Makes them, of the parts of one console."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def page(self, page: Page | LocalPage) -> Callable[[Request], Any]:
        """The endpoint of a page, for both of its paths."""

        async def endpoint(request: Request) -> Response:
            asked = self._parts.asked_by(request)
            if isinstance(page, LocalPage):
                work = run_in_threadpool(page.read, asked)
            else:
                work = self._parts.cluster.call(lambda client: page.read(client, asked), page.patience_s)
            return await self._answered(request, page.template, page.title, page.live, work)

        return endpoint

    def work(self, work: Work) -> Callable[[Request], Any]:
        """The endpoint of a form that changes no cluster."""

        async def endpoint(request: Request) -> Response:
            visitor: Visitor = request.scope["visitor"]
            form = visitor.form or {}
            query = Query({name: values[-1] for name, values in form.items()}, form)
            asked = Asked(query, self._parts.settings, make_audits=self._parts.audits)
            sender = Sender(visitor.user, address_of(request.scope))
            try:
                there = await run_in_threadpool(work.act, asked, sender)
            except BadQuery as error:
                self._parts.refusals.note(request, sender.user, str(error), naming(asked.query.values))
                return self._parts.refusals.of(request, error.status, str(error))
            except ClientError as error:
                return self._parts.refusals.of(request, 503, str(error))
            return RedirectResponse(there, 303)

        return endpoint

    async def download(self, request: Request) -> Response:
        try:
            return await self._parts.downloads.answer(request, self._parts.asked_by(request))
        except BadQuery as error:
            return self._parts.refusals.of(request, 400, str(error))
        except ClientError as error:
            return self._parts.refusals.of(request, status_of(error), str(error))

    def action(self, action: Action) -> Callable[[Request], Any]:
        """The endpoint of a form."""

        async def endpoint(request: Request) -> Response:
            visitor: Visitor = request.scope["visitor"]
            permit = visitor.permit
            if permit is None:
                raise HTTPException(405)
            typed = {name: values[-1] for name, values in (visitor.form or {}).items()}
            asked = Asked(Query({**request.query_params, **typed}), self._parts.settings)
            done = self._changed(action, asked, permit) if action.is_change else self._shown(action, asked, permit)
            return await self._answered(request, action.template, action.title, False, done)

        return endpoint

    def _shown(self, action: Action, asked: Asked, permit: Permit) -> Awaitable[Mapping[str, Any]]:
        """The rows of an action that only shows something."""
        from oncelog.console.changes.audited_changes import Changes

        return self._parts.cluster.call(lambda client: action.act(client, asked, permit, Changes(no_audit)))

    async def _changed(self, action: Action, asked: Asked, permit: Permit) -> Mapping[str, Any]:
        """Carry an action out; there is a line about it in the audit, whatever comes of it. Raises what it does."""
        from oncelog.console.changes.audited_changes import Changes

        changes, named = Changes(self._parts.audit), naming(asked.query.values)

        def work(client: Client) -> Mapping[str, Any]:
            try:
                rows = action.act(client, asked, permit, changes)
            except Exception as error:
                changes.end(permit, action.path, named, error)
                raise
            finally:
                self._parts.recent.forget()
            changes.end(permit, action.path, named)
            return rows

        try:
            return await self._parts.cluster.call(work, CHANGE_PATIENCE_S, is_change=True)
        except ClusterSlow as error:
            await run_in_threadpool(changes.end, permit, action.path, named, error)
            raise

    async def _answered(
        self,
        request: Request,
        template: str,
        title: str,
        live: bool,
        work: Awaitable[Mapping[str, Any]],
    ) -> Response:
        try:
            rows = await work
        except BadQuery as error:
            return self._parts.refusals.of(request, error.status, str(error))
        except ClientError as error:
            status = status_of(error)
            return self._parts.refusals.of(request, status, str(error), live=status == 503 and request.method == "GET")
        if request.url.path.endswith(".json"):
            return _document(to_json(rows))
        visitor: Visitor = request.scope["visitor"]
        shown = {
            "title": title,
            "live": rows.get("live", live),
            "path": request.url.path,
            "own_address": own_address(request),
            "query": dict(request.query_params),
            "visitor": visitor,
            "now_ms": int(time.time() * 1000),
        }
        return HTMLResponse(self._parts.templates.get_template(template).render(**{**rows, **shown}))

    async def failed(self, request: Request, error: Exception) -> Response:
        """The answer for a path or method that is not there."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        reason = {404: "there is no such page", 405: f"{request.method} is not used here"}.get(status, "it failed")
        return self._parts.refusals.of(request, status, reason)


def _document(value: Mapping[str, Any]) -> Response:
    """JSON; where there are large bytes in it, in pieces."""
    if not _has_large(value):
        return JSONResponse(value)
    return StreamingResponse(json_pieces(value), media_type="application/json")


def _has_large(value: Any) -> bool:
    """True if there are large bytes in a document."""
    if isinstance(value, Mapping):
        return any(map(_has_large, value.values()))
    return isinstance(value, LargeBytes)
