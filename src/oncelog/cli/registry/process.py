"""Runs what ``oncelog registry`` asks for: a server until it is interrupted, or one pass over the topic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import TextIO

from oncelog.cli.support.terminal import log_to_stderr, print_line
from oncelog.client.errors import ClientError
from oncelog.listening.descriptors import raise_limit
from oncelog.registry.errors import RegistryError
from oncelog.registry.library_formats import LibraryFormats
from oncelog.registry.serving import RegistryServer, Settings, opened
from oncelog.registry.transfer import exported, import_records, read_lines, to_line
from oncelog.runtime.process import new_event_loop
from oncelog.runtime.service_manager import notify_ready


def run_registry(settings: Settings) -> int:
    """Serves until interrupted. Raises ClientError."""
    raise_limit()
    log_to_stderr(logging.INFO, "%(asctime)s %(levelname)-7s %(message)s")
    mode = "read-only" if settings.read_only else f"writes {settings.topic}"
    line = f"registry of {settings.bootstrap} at {settings.url} ({mode})"

    def announce() -> None:
        print_line(line, err=True, flush=True)
        notify_ready(line)

    with asyncio.Runner(loop_factory=new_event_loop) as runner, suppress(KeyboardInterrupt):
        runner.run(RegistryServer(settings, LibraryFormats()).serve(announce))
    return 0


def export_lines(settings: Settings, output: TextIO) -> int:
    """The number of lines written. Raises ClientError."""

    async def export() -> int:
        count = 0
        async with opened(settings, LibraryFormats(), create=False) as registry:
            for record in exported(registry.store):
                count += 1
                output.write(to_line(record) + "\n")
        return count

    return asyncio.run(export())


def import_lines(settings: Settings, lines: Iterable[str]) -> int:
    """The number of records added. Raises ClientError."""
    records = list(read_lines(lines))

    async def run_import() -> int:
        async with opened(settings, LibraryFormats()) as registry:
            try:
                return await registry.change(lambda: import_records(registry.store, records))
            except RegistryError as error:
                raise ClientError(error.message) from None

    return asyncio.run(run_import())
