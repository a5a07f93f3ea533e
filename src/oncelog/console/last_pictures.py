"""The last pictures of pages, shown with their age while the cluster does not answer.

They are shared by all users, so a picture holds no session's token; and they are bounded in bytes.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from oncelog.base.units import KIB, MIB

MAX_BYTES: Final = 2 * MIB  # Of all pictures, compressed.
OVERHEAD: Final = 500  # Of each picture.
MAX_PAGE: Final = 512 * KIB  # A larger page is not kept.
_TOKEN: Final = "\0token\0"
_BEGIN, _END = "<main ", '<footer id="foot">'


@dataclass(frozen=True, slots=True)
class Picture:
    title: str
    content: str
    at_ms: int


class LastPictures:
    """Thread-safe."""

    def __init__(self, clock_ms: Callable[[], int] = lambda: int(time.time() * 1000)) -> None:
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._pictures: OrderedDict[str, tuple[str, bytes, int]] = OrderedDict()
        self._size = 0

    def keep(self, address: str, body: bytes, token: str) -> None:
        if len(body) > MAX_PAGE or _END.encode() not in body:
            return
        page = body.decode()
        content = page[page.index(">", page.index(_BEGIN)) + 1 : page.rindex(_END)]
        title = page[page.index("<title>") + 7 : page.index("</title>")]
        packed = zlib.compress(content.replace(token, _TOKEN).encode(), 1)
        with self._lock:
            self._drop(address)
            self._pictures[address] = title, packed, self._clock_ms()
            self._size += OVERHEAD + len(packed) + len(address)
            while self._size > MAX_BYTES:
                self._drop(next(iter(self._pictures)))

    def of(self, address: str, token: str) -> Picture | None:
        with self._lock:
            kept = self._pictures.get(address)
            if kept is None:
                return None
            self._pictures.move_to_end(address)
        title, packed, at_ms = kept
        return Picture(title, zlib.decompress(packed).decode().replace(_TOKEN, token), at_ms)

    def _drop(self, address: str) -> None:
        kept = self._pictures.pop(address, None)
        if kept is not None:
            self._size -= OVERHEAD + len(kept[1]) + len(address)
