"""The route of downloads: errors come before the first byte; at most two run at once, one of them Parquet."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from oncelog.client.errors import ClientError
from oncelog.console.cluster.access import ClusterAccess
from oncelog.console.downloads import PATH, json_lines
from oncelog.console.downloads.reading import Writer, written
from oncelog.console.downloads.selection import FILE_FORMATS, PARQUET, Selection, selection_of
from oncelog.console.formats.readers import INSTALL
from oncelog.console.page import PageRequest
from oncelog.console.query import BadQuery
from oncelog.console.records.decoding import Decoder
from oncelog.console.streaming.pump import ConsoleEnds, Shutdown, Stopped, pumped

MAX_DOWNLOADS: Final = 2
MAX_PARQUET: Final = 1
_PARQUET_TYPE: Final = "application/vnd.apache.parquet"
_DECODING_S: Final = 60.0  # Time limit for decoding values by schema in one download.
_AHEAD: Final = 1


class TooManyDownloads(ClientError):
    """The maximum number of downloads is already running."""


class Downloads:
    def __init__(self, cluster: ClusterAccess, shutdown_signal: Shutdown) -> None:
        self._shutdown_signal = shutdown_signal
        self._cluster = cluster
        self._pool = ThreadPoolExecutor(MAX_DOWNLOADS, thread_name_prefix="oncelog-console-download")
        self._running = self._parquet_running = 0

    async def answer(self, request: Request, page_request: PageRequest) -> Response:
        """The response with a file. Raises BadQuery and ClientError if it cannot be started."""
        file_format = page_request.query.choice("as", FILE_FORMATS)
        if file_format == PARQUET and find_spec("pyarrow") is None:
            raise BadQuery(f"Parquet needs pyarrow: {INSTALL}")
        selection = await self._cluster.call(lambda client: selection_of(client, page_request.query))
        selection = replace(selection, path=page_request.settings.prefix + PATH)
        headers = {"Content-Disposition": f'attachment; filename="{selection.file_name(file_format)}"'}
        media_type = _PARQUET_TYPE if file_format == PARQUET else json_lines.MEDIA_TYPE
        if request.method == "HEAD":
            return Response(headers=headers, media_type=media_type)
        if self._running >= MAX_DOWNLOADS:
            raise TooManyDownloads(f"{self._running} downloads are already running; wait until one ends")
        if file_format == PARQUET and self._parquet_running >= MAX_PARQUET:
            raise TooManyDownloads("a Parquet download is already running; wait for it, or choose JSON lines")
        self._running += 1
        self._parquet_running += file_format == PARQUET
        return StreamingResponse(
            self._pieces(selection, file_format, page_request), media_type=media_type, headers=headers
        )

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _pieces(self, selection: Selection, file_format: str, page_request: PageRequest) -> AsyncIterator[bytes]:
        def made(stopped: Stopped) -> Generator[bytes, None, None]:
            writer = _writer(selection, file_format, page_request)
            try:
                with self._cluster.new_client() as client:
                    yield from written(client, selection, writer, stopped)
            except ClientError as error:
                if file_format == PARQUET:
                    raise  # A file without its footer cannot be mistaken for a whole one.
                yield _broken_off(error)

        try:
            async for piece in pumped(self._pool, made, _AHEAD, self._ended, self._shutdown_signal):
                if piece:
                    yield piece
        except ConsoleEnds as error:
            if file_format == PARQUET:
                raise
            yield _broken_off(error)
        finally:
            # Before the response ends: a client that continues a cut download asks at once.
            self._parquet_running -= file_format == PARQUET

    def _ended(self) -> None:
        self._running -= 1


def _broken_off(error: ClientError) -> bytes:
    return json.dumps({"oncelog": {"complete": False, "error": str(error)}}).encode() + b"\n"


def _writer(selection: Selection, file_format: str, page_request: PageRequest) -> Writer:
    if file_format == PARQUET:
        os.environ.setdefault(
            "ARROW_DEFAULT_MEMORY_POOL", "system"
        )  # It returns freed memory; the other pools keep it.

        from oncelog.console.downloads.parquet import ParquetFile  # Imported late for its memory.

        return ParquetFile(selection)
    return json_lines.JsonLines(
        selection,
        Decoder(page_request.decoding, registry=page_request.registry, budget_s=_DECODING_S, is_indented=False),
    )
