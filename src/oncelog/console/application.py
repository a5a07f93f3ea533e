"""The ASGI application: routes of pages, actions and streams around one cluster, behind the gate."""

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
from oncelog.console.page import Asked
from oncelog.console.pages import ACTIONS, PAGES, WORKS
from oncelog.console.services import Parts
from oncelog.console.settings import Settings
from oncelog.console.streaming.event_streams import Event
from oncelog.console.streaming.pump import Stopped

_STATIC: Final = Path(__file__).parent / "static"


def _searching(client: Client, asked: Asked, stopped: Stopped) -> Iterator[Event]:
    from oncelog.console.streaming.sources import searching

    return searching(client, asked, stopped)


def _tailing(client: Client, asked: Asked, stopped: Stopped) -> Iterator[Event]:
    from oncelog.console.streaming.sources import tailing

    return tailing(client, asked, stopped)


async def _front(request: Request) -> Response:
    return RedirectResponse("/overview", 307)


async def _alive(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


def application(
    settings: Settings, connect: Callable[[], Client] | None = None, decoding: DecodingProcess | None = None
) -> Starlette:
    """The console as an ASGI application. ``connect`` makes its clients; ``decoding`` has been started already. Raises
    ClientError for the audit log, and for schemas that cannot be read."""
    give_back_large_memory()
    decoding = decoding or DecodingProcess(settings.schemas)
    parts = Parts(settings, connect, decoding)
    decoding.ready()
    console = Endpoints(parts)
    routes: list[BaseRoute] = [Route("/", _front), Route("/health.json", _alive)]
    for page in PAGES:
        routes += [Route(page.path + ending, console.page(page), methods=["GET"]) for ending in ("", ".json")]
    routes.append(Route("/messages/search-events", parts.streams.endpoint(_searching), methods=["GET"]))
    routes.append(Route("/messages/tail-events", parts.streams.endpoint(_tailing), methods=["GET"]))
    routes.append(Route(DOWNLOAD_PATH, console.download, methods=["GET"]))
    routes += [Route(action.path, console.action(action), methods=["POST"]) for action in ACTIONS]
    routes += [Route(work.path, console.work(work), methods=["POST"]) for work in WORKS]
    routes.append(Mount("/static", StaticFiles(directory=_STATIC)))

    @contextlib.asynccontextmanager
    async def running(app: Starlette) -> AsyncIterator[None]:
        if parts.sampler is not None:
            parts.sampler.start()
        yield
        await run_in_threadpool(parts.close)

    app = Starlette(
        routes=routes,
        middleware=[Middleware(Gate, settings=settings, refusals=parts.refusals)],
        exception_handlers={404: console.failed, 405: console.failed},
        lifespan=running,
    )
    app.state.end = parts.end
    return app


# By itself glibc takes large pieces out of its heaps once it has seen one freed, and keeps what they leave. It has a
# heap for each thread: every thread that has seen a large value would keep tens of megabytes.
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_LARGE_BYTES: Final = 512 * KIB


def give_back_large_memory() -> None:
    """Have glibc map each large piece of memory by itself, and unmap it when it is free, and use one heap."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        libc.mallopt(_M_ARENA_MAX, 1)
