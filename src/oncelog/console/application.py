"""The ASGI application: routes of pages and actions around one cluster, behind the gate."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from oncelog.admin.transactions.audit_trail import Audit, audit_file, no_audit
from oncelog.base.errors import ErrorCode
from oncelog.base.json_values import to_json
from oncelog.client.blocking.client import Client
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.console.audit_lines import naming
from oncelog.console.audits.shelf import AuditShelf
from oncelog.console.changes import Changes, NotConfirmed
from oncelog.console.cluster_access import CLIENT_SETTINGS, ClusterAccess, ClusterSlow
from oncelog.console.downloads.reading import PATH as DOWNLOAD_PATH
from oncelog.console.downloads.serving import Downloads
from oncelog.console.formats.process import DecodingProcess
from oncelog.console.gate import Gate, Permit, Sender, Visitor, address_of
from oncelog.console.metrics.broker_ports import checked_address
from oncelog.console.metrics.sampler import Sampler
from oncelog.console.page import Action, Asked, LocalPage, Page, Work
from oncelog.console.pages import ACTIONS, PAGES, WORKS
from oncelog.console.query import BadQuery, Query
from oncelog.console.rates import Rates
from oncelog.console.recent import Recent
from oncelog.console.refusals import Refusals, own_address
from oncelog.console.rendering import environment
from oncelog.console.settings import Settings
from oncelog.console.stream_sources import searching, tailing
from oncelog.console.streams import Streams

CHANGE_PATIENCE_S: Final = 90.0
"""A change waits longer than a page: markers have to be written, and its outcome is worth knowing."""
_STATIC: Final = Path(__file__).parent / "static"
_NOT_THERE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)
_FORBIDDEN: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


class Console:
    """What all requests share."""

    def __init__(self, settings: Settings, connect: Callable[[], Client] | None = None) -> None:
        config = CLIENT_SETTINGS | dict(settings.client)
        self.settings = settings
        audit: Audit = no_audit if settings.audit_log is None else audit_file(settings.audit_log)
        self.cluster = ClusterAccess(
            connect or (lambda: Client(settings.bootstrap, config=config)), settings.workers, settings.patience_s
        )
        self.templates: Environment = environment(
            pages=[page for page in PAGES if page.path.count("/") == 1],
            allow_changes=settings.allow_changes,
            bootstrap=settings.bootstrap,
            command_options=settings.command_options,
        )
        self.recent = Recent()
        self.rates = Rates()
        self.audits = AuditShelf(settings.audit_reports, settings.audit_data, audit=audit)
        self.sampler: Sampler | None = None
        if settings.sample_every_s:
            urls = [checked_address(one) for one in settings.metrics_urls]
            self.sampler = Sampler(self.cluster.new_client, urls, settings.sample_every_s)
        self.decoding = DecodingProcess(settings.schemas)
        self.streams = Streams(self.cluster, self.templates, self.asked_by)
        self.downloads = Downloads(self.cluster)
        self.audit = audit
        self.refusals = Refusals(self.templates, audit)

    def asked_by(self, request: Request) -> Asked:
        """The question of a reading request."""
        as_json = request.url.path.endswith(".json")
        query = Query(request.query_params)
        return Asked(query, self.settings, as_json, self.recent, self.decoding, self.audits, self.sampler, self.rates)

    def page(self, page: Page | LocalPage) -> Callable[[Request], Any]:
        """The endpoint of a page, for both of its paths."""

        async def endpoint(request: Request) -> Response:
            asked = self.asked_by(request)
            if isinstance(page, LocalPage):
                work = run_in_threadpool(page.read, asked)
            else:
                work = self.cluster.call(lambda client: page.read(client, asked), page.patience_s)
            return await self._answered(request, page.template, page.title, page.live, work)

        return endpoint

    def work(self, work: Work) -> Callable[[Request], Any]:
        """The endpoint of a form that changes no cluster."""

        async def endpoint(request: Request) -> Response:
            visitor: Visitor = request.scope["visitor"]
            form = visitor.form or {}
            asked = Asked(
                Query({name: values[-1] for name, values in form.items()}, form), self.settings, audits=self.audits
            )
            sender = Sender(visitor.user, address_of(request.scope))
            try:
                there = await run_in_threadpool(work.act, asked, sender)
            except BadQuery as error:
                self.refusals.note(request, sender.user, str(error), naming(asked.query.values))
                return self.refusals.of(request, error.status, str(error))
            except ClientError as error:
                return self.refusals.of(request, 503, str(error))
            return RedirectResponse(there, 303)

        return endpoint

    async def download(self, request: Request) -> Response:
        """The endpoint of downloads."""
        try:
            return await self.downloads.answer(request, self.asked_by(request))
        except BadQuery as error:
            return self.refusals.of(request, 400, str(error))
        except ClientError as error:
            return self.refusals.of(request, status_of(error), str(error))

    def action(self, action: Action) -> Callable[[Request], Any]:
        """The endpoint of a form."""

        async def endpoint(request: Request) -> Response:
            visitor: Visitor = request.scope["visitor"]
            permit = visitor.permit
            if permit is None:
                raise HTTPException(405)
            typed = {name: values[-1] for name, values in (visitor.form or {}).items()}
            asked = Asked(Query({**request.query_params, **typed}), self.settings)
            done = self._changed(action, asked, permit) if action.is_change else self._shown(action, asked, permit)
            return await self._answered(request, action.template, action.title, False, done)

        return endpoint

    def _shown(self, action: Action, asked: Asked, permit: Permit) -> Awaitable[Mapping[str, Any]]:
        """The rows of an action that only shows something."""
        return self.cluster.call(lambda client: action.act(client, asked, permit, Changes(no_audit)))

    async def _changed(self, action: Action, asked: Asked, permit: Permit) -> Mapping[str, Any]:
        """Carry an action out; there is a line about it in the audit, whatever comes of it. Raises what it does."""
        changes, named = Changes(self.audit), naming(asked.query.values)

        def work(client: Client) -> Mapping[str, Any]:
            try:
                rows = action.act(client, asked, permit, changes)
            except Exception as error:
                changes.end(permit, action.path, named, error)
                raise
            finally:
                self.recent.forget()
            changes.end(permit, action.path, named)
            return rows

        try:
            return await self.cluster.call(work, CHANGE_PATIENCE_S)
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
            return self.refusals.of(request, error.status, str(error))
        except ClientError as error:
            status = status_of(error)
            return self.refusals.of(request, status, str(error), live=status == 503 and request.method == "GET")
        if request.url.path.endswith(".json"):
            return JSONResponse(to_json(rows))
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
        return HTMLResponse(self.templates.get_template(template).render(**{**rows, **shown}))

    async def failed(self, request: Request, error: Exception) -> Response:
        """The answer for a path or method that is not there."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        reason = {404: "there is no such page", 405: f"{request.method} is not used here"}.get(status, "it failed")
        return self.refusals.of(request, status, reason)


def status_of(error: ClientError) -> int:
    """The HTTP status that says of whose making an error is."""
    if isinstance(error, NotConfirmed):
        return 409
    if isinstance(error, BrokerRefused):
        if error.code in _NOT_THERE:
            return 404
        return 403 if error.code in _FORBIDDEN else 502
    return 503


async def _front(request: Request) -> Response:
    return RedirectResponse("/overview", 307)


async def _alive(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


def application(settings: Settings, connect: Callable[[], Client] | None = None) -> Starlette:
    """The console as an ASGI application. ``connect`` makes its clients. Raises ClientError for the audit log,
    and for schemas that cannot be read."""
    console = Console(settings, connect)
    routes: list[BaseRoute] = [Route("/", _front), Route("/health.json", _alive)]
    for page in PAGES:
        routes += [Route(page.path + ending, console.page(page), methods=["GET"]) for ending in ("", ".json")]
    routes.append(Route("/messages/search-events", console.streams.endpoint(searching), methods=["GET"]))
    routes.append(Route("/messages/tail-events", console.streams.endpoint(tailing), methods=["GET"]))
    routes.append(Route(DOWNLOAD_PATH, console.download, methods=["GET"]))
    routes += [Route(action.path, console.action(action), methods=["POST"]) for action in ACTIONS]
    routes += [Route(work.path, console.work(work), methods=["POST"]) for work in WORKS]
    routes.append(Mount("/static", StaticFiles(directory=_STATIC)))

    @contextlib.asynccontextmanager
    async def running(app: Starlette) -> AsyncIterator[None]:
        if console.sampler is not None:
            console.sampler.start()
        yield
        if console.sampler is not None:
            await run_in_threadpool(console.sampler.close)
        console.streams.close()
        console.downloads.close()
        await run_in_threadpool(console.audits.close)
        console.cluster.close()
        console.decoding.close()

    return Starlette(
        routes=routes,
        middleware=[Middleware(Gate, settings=settings, refusals=console.refusals)],
        exception_handlers={404: console.failed, 405: console.failed},
        lifespan=running,
    )
