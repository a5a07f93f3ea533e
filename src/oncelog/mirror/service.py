"""Several engines as one mirror: one a source, each on its own; the first that cannot go on ends all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from oncelog.mirror.engine import Engine


async def run_engines(engines: Sequence[Engine]) -> None:
    """Run until all have ended. When one fails the others bring their transactions to an end; its error is raised."""
    tasks = [asyncio.create_task(engine.run(), name=f"mirror of {engine.settings.source.alias}") for engine in engines]
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
    for task in tasks:
        task.result()
