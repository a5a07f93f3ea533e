"""The ASGI application of the console: pages, actions, streams and downloads for one cluster, behind the gate."""

from __future__ import annotations

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
from oncelog.console.endpoints import Endpoints
from oncelog.console.formats.decoder_process import DecodingProcess
from oncelog.console.page import PageRequest
from oncelog.console.pages import ACTIONS, PAGES, WORKS
from oncelog.console.services import Services
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


async def _front(request: Request) -> Response:
    return RedirectResponse("/overview", 307)


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
    services = Services(settings, connect, decoding)
    decoding.ready()
    # The schemas must be readable before the console listens.
    console = Endpoints(services)
    routes: list[BaseRoute] = [Route("/", _front), Route("/health.json", _alive)]
    for page in PAGES:
        routes += [Route(page.path + ending, console.page(page), methods=["GET"]) for ending in ("", ".json")]
    routes.append(Route("/messages/search-events", services.streams.endpoint(_searching), methods=["GET"]))
    routes.append(Route("/messages/tail-events", services.streams.endpoint(_tailing), methods=["GET"]))
    routes.append(Route(DOWNLOAD_PATH, console.download, methods=["GET"]))
    routes += [Route(action.path, console.action(action), methods=["POST"]) for action in ACTIONS]
    routes += [Route(work.path, console.work(work), methods=["POST"]) for work in WORKS]
    routes.append(Mount("/static", StaticFiles(directory=_STATIC)))

    @contextlib.asynccontextmanager
    async def running(app: Starlette) -> AsyncIterator[None]:
        if services.sampler is not None:
            services.sampler.start()
        yield
        await run_in_threadpool(services.close)

    app = Starlette(
        routes=routes,
        middleware=[Middleware(Gate, settings=settings, refusals=services.refusals)],
        exception_handlers={404: console.failed, 405: console.failed},
        lifespan=running,
    )
    app.state.end = services.end
    return app


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
