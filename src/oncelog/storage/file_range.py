"""A range of a file, read when the socket has room: fetch responses consist of these."""

from __future__ import annotations

from typing import NamedTuple

from oncelog.ports import OpenFile


class FileRange(NamedTuple):
    """``size_bytes`` bytes of ``file`` from ``position``, not copied before they are sent."""

    file: OpenFile
    position: int
    size_bytes: int
