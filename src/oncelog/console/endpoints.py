"""Endpoints of pages, actions, forms and downloads: from an admitted request to its response."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import parse_qsl

from jinja2 import Environment
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse

from oncelog.admin.transactions.audit_trail import no_audit
from oncelog.base.notation.json_values import to_json
from oncelog.client.blocking.client import Client
from oncelog.client.errors import ClientError
from oncelog.console.admission.audit_lines import naming
from oncelog.console.admission.error_words import words_of
from oncelog.console.admission.gate import Permit, Sender, Visitor, address_of
from oncelog.console.admission.refusals import Refusals, form_address, own_address
from oncelog.console.cluster.access import ClusterSlow
from oncelog.console.cluster.statuses import status_of
from oncelog.console.kept_forms import below_heading, refilled
from oncelog.console.page import Action, LocalPage, Page, PageRequest, Work
from oncelog.console.pages import ACTIONS, PAGES
from oncelog.console.query import BadQuery, Mistyped, NotConfirmed, Query
from oncelog.console.records.large_json import LargeBytes, json_pieces
from oncelog.console.services import Services

# A change may take longer than a page: markers must be written, and the user needs to know the outcome.
CHANGE_PATIENCE_S: Final = 90.0
_BY_PATH: Final = {page.path: page for page in PAGES}
_PREVIEWS: Final = {action.path: action for action in ACTIONS if not action.is_change}


class Endpoints:
    def __init__(self, services: Services) -> None:
        self._services = services

    def page(self, page: Page | LocalPage) -> Callable[[Request], Any]:

        async def endpoint(request: Request) -> Response:
            work = self._read(page, self._services.page_request_of(request))
            response = await self._answered(request, page.template, page.title, page.live, work)
            if isinstance(page, Page) and isinstance(response, HTMLResponse) and response.status_code == 200:
                visitor: Visitor = request.scope["visitor"]
                self._services.pictures.keep(own_address(request), bytes(response.body), visitor.form_token)
            return response

        return endpoint

    def _read(self, page: Page | LocalPage, page_request: PageRequest) -> Awaitable[Mapping[str, Any]]:
        if isinstance(page, LocalPage):
            return run_in_threadpool(page.read, page_request)
        return self._services.cluster.call(lambda client: page.read(client, page_request), page.patience_s)

    def work(self, work: Work) -> Callable[[Request], Any]:

        async def endpoint(request: Request) -> Response:
            visitor: Visitor = request.scope["visitor"]
            form = visitor.form or {}
            query = Query({name: values[-1] for name, values in form.items()}, form)
            page_request = PageRequest(query, self._services.settings, make_audits=self._services.audits)
            sender = Sender(visitor.user, address_of(request.scope))
            try:
                address = await run_in_threadpool(work.act, page_request, sender)
            except BadQuery as error:
                self._services.refusals.note(request, sender.user, str(error), naming(page_request.query.values))
                return self._services.refusals.of(request, error.status, str(error))
            except ClientError as error:
                return self._services.refusals.of(request, 503, str(error))
            return RedirectResponse(self._services.settings.prefix + address, 303)

        return endpoint

    async def download(self, request: Request) -> Response:
        try:
            return await self._services.downloads.answer(request, self._services.page_request_of(request))
        except BadQuery as error:
            return self._services.refusals.of(request, 400, str(error))
        except ClientError as error:
            return self._services.refusals.of(request, status_of(error), str(error))

    def action(self, action: Action) -> Callable[[Request], Any]:

        async def endpoint(request: Request) -> Response:
            visitor: Visitor = request.scope["visitor"]
            permit = visitor.permit
            if permit is None:
                raise HTTPException(405)
            typed = {name: values[-1] for name, values in (visitor.form or {}).items()}
            page_request = PageRequest(Query({**request.query_params, **typed}), self._services.settings)
            done = (
                self._changed(action, page_request, permit)
                if action.is_change
                else self._shown(action, page_request, permit)
            )
            return await self._answered(request, action.template, action.title, False, done)

        return endpoint

    def _shown(self, action: Action, page_request: PageRequest, permit: Permit) -> Awaitable[Mapping[str, Any]]:
        from oncelog.console.changes.audited_changes import Changes

        return self._services.cluster.call(lambda client: action.act(client, page_request, permit, Changes(no_audit)))

    async def _changed(self, action: Action, page_request: PageRequest, permit: Permit) -> Mapping[str, Any]:
        """Carry out an action and write its audit line, whatever the outcome."""
        from oncelog.console.changes.audited_changes import Changes

        changes, subject = Changes(self._services.audit), naming(page_request.query.values)

        def act(client: Client) -> Mapping[str, Any]:
            try:
                rows = action.act(client, page_request, permit, changes)
            except Exception as error:
                changes.end(permit, action.path, subject, error)
                raise
            finally:
                self._services.recent.forget()
                self._services.diagnoses.forget()
            changes.end(permit, action.path, subject)
            return rows

        try:
            return await self._services.cluster.call(act, CHANGE_PATIENCE_S, is_change=True)
        except ClusterSlow as error:
            await run_in_threadpool(changes.end, permit, action.path, subject, error)
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
            return await self._failed(request, error.status, error)
        except ClientError as error:
            return await self._failed(request, status_of(error), error)
        return rendered(self._services.templates, request, template, title, live, rows)

    async def _failed(self, request: Request, status: int, error: BadQuery | ClientError) -> Response:
        # The last picture if the cluster does not answer, or the form again if one was sent; else the reason alone.
        is_reading = request.method == "GET"
        response = None
        if not request.url.path.endswith(".json"):
            if not is_reading:
                response = await self._form_again(request, status, error)
            elif status == 503:
                response = self._last_picture(request, error)
        return response or self._services.refusals.of(
            request, status, str(error), error, live=status == 503 and is_reading
        )

    def _last_picture(self, request: Request, error: Exception) -> Response | None:
        if request.headers.get("hx-target", "content") != "content":
            return None  # A part of a page, as a filter asks for, stays as it is.
        visitor: Visitor = request.scope["visitor"]
        picture = self._services.pictures.of(own_address(request), visitor.form_token)
        if picture is None:
            return None
        templates = self._services.templates
        context = context_of(templates, request, "", True)
        context |= {"now_ms": picture.at_ms, "age_ms": max(0, context["now_ms"] - picture.at_ms), "is_stale": True}
        notice = templates.get_template("stale.html").render(error=str(error), age_ms=context["age_ms"])
        context |= {"page_title": Markup(picture.title), "content": Markup(below_heading(picture.content, notice))}
        return HTMLResponse(templates.get_template("last-picture.html").render(**context), 503)

    async def _form_again(self, request: Request, status: int, error: Exception) -> Response | None:
        """The page that sent the form, as it is now, with the typed values; None if it cannot be shown."""
        templates = self._services.templates
        path, _, parameters = (form_address(request) or "").partition("?")
        own_path = path.removeprefix(str(templates.globals["prefix"]))
        page = _BY_PATH.get(own_path) or _PREVIEWS.get(own_path)
        visitor: Visitor = request.scope["visitor"]
        if page is None or status == 503 or visitor.permit is None:
            return None
        fields = {**{name: (value,) for name, value in request.query_params.items()}, **(visitor.form or {})}
        typed = {name: values[-1] for name, values in fields.items()}
        # A preview was made from the fields of a form, which are in this form too.
        query = Query(typed if isinstance(page, Action) else dict(parse_qsl(parameters, keep_blank_values=True)))
        page_request = replace(self._services.page_request_of(request), query=query)
        try:
            if isinstance(page, Action):
                rows = await self._shown(page, page_request, visitor.permit)
            else:
                rows = await self._read(page, page_request)
        except (BadQuery, ClientError):
            return None
        context = context_of(templates, request, page.title, False) | {"path": page.path, "query": query.values}
        words = words_of(status, error, page.path, typed)
        notice = templates.get_template("failed-form.html").render(words=words, reason=str(error))
        html = templates.get_template(page.template).render(**{**rows, **context, "live": False})
        kept = dict(visitor.form or {})
        if not isinstance(error, Mistyped) and (isinstance(error, NotConfirmed) or isinstance(page, Action)):
            kept["typed"] = ("",)  # The plan is another, or the record may have been written: to be confirmed again.
        return HTMLResponse(refilled(below_heading(html, notice), request.url.path, kept), status)


def rendered(
    templates: Environment, request: Request, template: str, title: str, live: bool, rows: Mapping[str, Any]
) -> Response:
    """The rows as a page, or as JSON if the address asks for it."""
    # A form with a ``wrong`` value is a page, too.
    status = rows.get("refused_with", 200)
    if request.url.path.endswith(".json"):
        if status != 200:
            return JSONResponse({"error": rows["wrong"], "status": status}, status)
        return _document(to_json(rows))
    context = context_of(templates, request, title, bool(rows.get("live", live)))
    return HTMLResponse(templates.get_template(template).render(**{**rows, **context}), status)


def context_of(templates: Environment, request: Request, title: str, live: bool) -> dict[str, Any]:
    return {
        "title": title,
        "live": live,
        "path": request.url.path.removeprefix(str(templates.globals["prefix"])),
        "own_address": own_address(request),
        "query": dict(request.query_params),
        "visitor": request.scope["visitor"],
        "now_ms": int(time.time() * 1000),
    }


def failed_by(refusals: Refusals) -> Callable[[Request, Exception], Any]:
    """The handler of addresses without a page, and of methods that a page does not support."""

    async def failed(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        reason = {404: "no such page", 405: f"{request.method} is not supported here"}.get(status, "internal error")
        return refusals.of(request, status, reason)

    return failed


def _document(value: Mapping[str, Any]) -> Response:
    """A JSON response, streamed in pieces if it holds large values."""
    if not _has_large(value):
        return JSONResponse(value)
    return StreamingResponse(json_pieces(value), media_type="application/json")


def _has_large(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_large, value.values()))
    return isinstance(value, LargeBytes)
