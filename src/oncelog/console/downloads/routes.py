"""The route of downloads: what cannot be is refused before the first byte; two files are made at once, one Parquet."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Generator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from oncelog.client.errors import ClientError
from oncelog.console.cluster.access import ClusterAccess
from oncelog.console.downloads import json_lines
from oncelog.console.downloads.reading import Writer, written
from oncelog.console.downloads.selection import FILE_FORMATS, PARQUET, Selection, selection_of
from oncelog.console.formats.readers import INSTALL
from oncelog.console.page import Asked
from oncelog.console.query import BadQuery
from oncelog.console.records.decoding import Decoder
from oncelog.console.streaming.pump import ConsoleEnds, Farewell, Stopped, pumped

MOST_DOWNLOADS: Final = 2
MOST_PARQUET: Final = 1
_PARQUET_TYPE: Final = "application/vnd.apache.parquet"
_DECODING_S: Final = 60.0
"""Time that one download spends on values by schema."""
_AHEAD: Final = 1


class TooManyDownloads(ClientError):
    """The bound of downloads at a time is reached."""


class Downloads:
    """Answers requests for files."""

    def __init__(self, cluster: ClusterAccess, farewell: Farewell) -> None:
        self._farewell = farewell
        self._cluster = cluster
        self._pool = ThreadPoolExecutor(MOST_DOWNLOADS, thread_name_prefix="oncelog-console-download")
        self._running = self._parquet_running = 0

    async def answer(self, request: Request, asked: Asked) -> Response:
        """A file. Raises BadQuery and ClientError for what cannot be begun."""
        file_format = asked.query.choice("as", FILE_FORMATS)
        if file_format == PARQUET and find_spec("pyarrow") is None:
            raise BadQuery(f"Parquet needs pyarrow: {INSTALL}")
        selection = await self._cluster.call(lambda client: selection_of(client, asked.query))
        headers = {"Content-Disposition": f'attachment; filename="{selection.file_name(file_format)}"'}
        media_type = _PARQUET_TYPE if file_format == PARQUET else json_lines.MEDIA_TYPE
        if request.method == "HEAD":
            return Response(headers=headers, media_type=media_type)
        if self._running >= MOST_DOWNLOADS:
            raise TooManyDownloads(f"{self._running} downloads run already; wait for one")
        if file_format == PARQUET and self._parquet_running >= MOST_PARQUET:
            raise TooManyDownloads("a Parquet file is being made already; wait for it, or take JSON lines")
        self._running += 1
        self._parquet_running += file_format == PARQUET
        return StreamingResponse(self._pieces(selection, file_format, asked), media_type=media_type, headers=headers)

    def close(self) -> None:
        """Take no more requests."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _pieces(self, selection: Selection, file_format: str, asked: Asked) -> AsyncIterator[bytes]:
        def made(stopped: Stopped) -> Generator[bytes, None, None]:
            writer = _writer(selection, file_format, asked)
            try:
                with self._cluster.new_client() as client:
                    yield from written(client, selection, writer, stopped)
            except ClientError as error:
                if file_format == PARQUET:
                    raise  # A file without its footer cannot be mistaken for a whole one.
                yield _broken_off(error)

        try:
            async for piece in pumped(self._pool, made, _AHEAD, self._ended, self._farewell):
                if piece:
                    yield piece
        except ConsoleEnds as error:
            if file_format == PARQUET:
                raise
            yield _broken_off(error)
        finally:
            self._parquet_running -= file_format == PARQUET  # Before its answer ends: who goes on asks at once.

    def _ended(self) -> None:
        self._running -= 1


def _broken_off(error: ClientError) -> bytes:
    """The last line of JSON lines that do not go on."""
    return json.dumps({"oncelog": {"complete": False, "error": str(error)}}).encode() + b"\n"


def _writer(selection: Selection, file_format: str, asked: Asked) -> Writer:
    if file_format == PARQUET:
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # It gives back what is free; the others keep it.

        from oncelog.console.downloads.parquet import ParquetFile  # pyarrow takes memory that only this needs

        return ParquetFile(selection)
    return json_lines.JsonLines(selection, Decoder(asked.decoding, budget_s=_DECODING_S, is_indented=False))
