"""The part of a file that a dump is asked for."""

from __future__ import annotations

from typing import NamedTuple


class Wanted(NamedTuple):
    """The part of a segment to show; offsets are of whole batches."""

    records: bool = False
    values: bool = True
    decode_internal: bool = True
    from_offset: int = 0
    to_offset: int | None = None
    check: bool = True
