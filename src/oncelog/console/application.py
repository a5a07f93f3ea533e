"""The ASGI application of the console: pages, actions, streams and downloads of its clusters, behind the gate.

The addresses of one cluster begin with ``/``. Of several, each has all pages below ``/c/NAME``, with services of its
own; logins, the audit log, audits, decoding and the read lock are shared.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from oncelog.base.units import KIB
from oncelog.client.blocking.client import Client
from oncelog.console.admission.gate import Gate
from oncelog.console.downloads import PATH as DOWNLOAD_PATH
from oncelog.console.endpoints import Endpoints, failed_by
from oncelog.console.formats.decoder_process import DecodingProcess
from oncelog.console.page import PageRequest
from oncelog.console.pages import ACTIONS, PAGES, WORKS
from oncelog.console.services import Services, Shared
from oncelog.console.settings import Settings
from oncelog.console.streaming.event_streams import Event
from oncelog.console.streaming.pump import Stopped

_STATIC: Final = Path(__file__).parent / "static"


def _searching(client: Client, page_request: PageRequest, stopped: Stopped) -> Iterator[Event]:
    from oncelog.console.streaming.sources import searching

    return searching(client, page_request, stopped)


def _tailing(client: Client, page_request: PageRequest, stopped: Stopped) -> Iterator[Event]:
    from oncelog.console.streaming.sources import tailing

    return tailing(client, page_request, stopped)


async def _alive(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


def application(
    settings: Settings, connect: Callable[[], Client] | None = None, decoding: DecodingProcess | None = None
) -> Starlette:
    """Build the console. ``connect`` creates its clients; ``decoding`` has been started already.

    Raises ClientError if the audit log cannot be opened, and ConfigError for unreadable schemas.
    """
    give_back_large_memory()
    decoding = decoding or DecodingProcess(settings.schemas)
    shared = Shared(settings, decoding)
    clusters = [Services(own, connect, shared) for own in shared.clusters]
    decoding.ready()
    # The schemas must be readable before the console listens.

    @contextlib.asynccontextmanager
    async def running(app: Starlette) -> AsyncIterator[None]:
        for services in clusters:
            if services.sampler is not None:
                services.sampler.start()
        yield
        await asyncio.gather(*(run_in_threadpool(services.close) for services in clusters))
        await run_in_threadpool(shared.close)

    def end() -> None:
        shared.shutdown_signal.begin()
        for services in clusters:
            services.cluster.end()

    app = Starlette(
        routes=[
            *(_routes(clusters[0]) if len(clusters) == 1 else _routes_of_several(clusters, shared)),
            Route("/health.json", _alive),
            Mount("/static", StaticFiles(directory=_STATIC)),
        ],
        middleware=[Middleware(Gate, settings=settings, refusals=shared.refusals)],
        exception_handlers=dict.fromkeys((404, 405), failed_by(shared.refusals)),
        lifespan=running,
    )
    app.state.end = end
    return app


def _routes(services: Services) -> list[BaseRoute]:
    """The routes of one cluster."""
    console = Endpoints(services)
    routes: list[BaseRoute] = [_redirecting("/", f"{services.settings.prefix}/overview")]
    for page in PAGES:
        routes += [Route(page.path + ending, console.page(page), methods=["GET"]) for ending in ("", ".json")]
    routes.append(Route("/messages/search-events", services.streams.endpoint(_searching), methods=["GET"]))
    routes.append(Route("/messages/tail-events", services.streams.endpoint(_tailing), methods=["GET"]))
    routes.append(Route(DOWNLOAD_PATH, console.download, methods=["GET"]))
    routes += [Route(action.path, console.action(action), methods=["POST"]) for action in ACTIONS]
    # A login, or a link back to the form, leads to the form that the preview was made from.
    forms = [(action.path, action.path.rpartition("/")[0]) for action in ACTIONS if not action.is_change]
    routes += [_redirecting(preview, services.settings.prefix + form) for preview, form in forms]
    routes += [Route(work.path, console.work(work), methods=["POST"]) for work in WORKS]
    return routes


def _routes_of_several(clusters: list[Services], shared: Shared) -> list[BaseRoute]:
    from oncelog.console.start_page import PATH, start_page

    start = start_page(clusters, shared)
    routes: list[BaseRoute] = [_redirecting("/", PATH)]
    routes += [Route(PATH + ending, start, methods=["GET"]) for ending in ("", ".json")]
    routes += [Mount(services.settings.prefix, routes=_routes(services)) for services in clusters]
    return routes


def _redirecting(path: str, address: str) -> Route:
    async def redirected(request: Request) -> Response:
        return RedirectResponse(address, 307)

    return Route(path, redirected, methods=["GET"])


# By default glibc serves large allocations from its heaps once it has seen one freed, and keeps the freed space. Each
# thread has a heap of its own, so every thread that handled a large value would keep tens of megabytes.
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_LARGE_BYTES: Final = 512 * KIB


def give_back_large_memory() -> None:
    """Make glibc map each large allocation separately, so that freeing it returns the memory, and use a single heap."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        libc.mallopt(_M_ARENA_MAX, 1)
