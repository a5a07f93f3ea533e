"""Several engines as one mirror: one a source, each on its own; the first that cannot go on ends all.

An engine that was to copy what was there, and could not copy all of it, does not end the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from oncelog.mirror.engine import Engine
from oncelog.mirror.errors import MirrorIncomplete
from oncelog.mirror.progress import RefusalRow


async def run_engines(engines: Sequence[Engine]) -> None:
    """Run until all have ended. When one fails the others bring their transactions to an end; its error is raised."""
    tasks = [asyncio.create_task(_run(engine), name=f"mirror of {engine.settings.source.alias}") for engine in engines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for engine in engines:
            engine.stop()
        await asyncio.gather(*tasks, return_exceptions=True)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    refusals = [row for task in tasks for row in task.result()]
    if refusals:
        raise MirrorIncomplete(refusals)


async def _run(engine: Engine) -> Sequence[RefusalRow]:
    """Run one engine; what it could not copy of what was there."""
    try:
        await engine.run()
    except MirrorIncomplete as error:
        return error.refusals
    return ()
