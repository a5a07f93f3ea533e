"""A piece of a file, to be read when there is room for it: what fetch responses are made of."""

from __future__ import annotations

from typing import NamedTuple

from oncelog.ports import OpenFile


class FileRange(NamedTuple):
    """``size_bytes`` bytes of ``file`` from ``position``; never copied before they are sent."""

    file: OpenFile
    position: int
    size_bytes: int
