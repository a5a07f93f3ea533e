"""A broker as a process: its loop, its signals, its ready line, its exit code."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from typing import Final

from oncelog import __version__
from oncelog.listening.descriptors import raise_limit
from oncelog.node.listeners.broker_settings import Settings
from oncelog.runtime.garbage_collector import Collector
from oncelog.runtime.server import Server
from oncelog.runtime.service_manager import keep_watchdog_fed, notify_ready, notify_stopping
from oncelog.runtime.stop_signals import stop_signals

SWITCH_INTERVAL_S: Final = 0.0005
"""Time after which a thread yields the interpreter. With Python's 5 ms an acknowledgement would wait for the loop's
present work, because a worker needs the interpreter after each sync."""
SHUTDOWN_S: Final = 30.0


def new_event_loop() -> asyncio.AbstractEventLoop:
    """An event loop; uvloop's halves asyncio's own time per request."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run_until_signalled(
    settings: Settings,
    *,
    http: str | None,
    announce: Callable[[str], None],
    on_ready: Callable[[str], object] = lambda address: None,
) -> int:
    """Run a broker until SIGTERM, SIGHUP, Ctrl-C or a failure; returns the exit code. ``on_ready`` is called with its
    address. Raises StartRefused."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    raise_limit()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_serve(settings, http, announce, on_ready))


async def _serve(
    settings: Settings, http: str | None, announce: Callable[[str], None], on_ready: Callable[[str], object]
) -> int:
    started_s = time.monotonic()
    loop = asyncio.get_running_loop()
    server = Server(settings)
    await server.start()
    Collector().start()
    stop = asyncio.Event()
    ending = stop_signals()
    for number in ending:
        loop.add_signal_handler(number, stop.set)
    if http is not None:
        announce(f"metrics on http://{await server.start_http(http)}/metrics")
    cluster = server.node.cluster
    announce(
        f"oncelog {__version__} ready on {server.address} "
        f"(broker {cluster.broker_id}, cluster {cluster.cluster_id}, data in {server.settings.data_directory}, "
        f"started in {time.monotonic() - started_s:.2f} s)"
    )
    notify_ready(f"broker {cluster.broker_id} of cluster {cluster.cluster_id} on {server.address}")
    on_ready(server.address)
    keep_watchdog_fed(loop)
    server.stopped.add_done_callback(lambda _stopped: stop.set())
    await stop.wait()
    notify_stopping()
    if server.stopped.done():
        await server.abandon()
        return 1
    for number in ending:
        loop.remove_signal_handler(number)  # a second Ctrl-C stops it at once
        if number not in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # the system and a shell each send SIGHUP
    reason = await server.stop(SHUTDOWN_S)
    announce("oncelog stopped cleanly" if reason is None else f"oncelog stopped, but not cleanly: {reason}")
    return 0 if reason is None else 1
