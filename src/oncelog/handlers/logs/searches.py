"""Searches of a log by time, of which workers do the long parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.handlers.broker.waits import Offload, Steps

if TYPE_CHECKING:
    from oncelog.storage.log.read import Search, TimestampOffset


def searched(search: Search, *, ends_with_client: bool = True) -> Steps[TimestampOffset | None]:
    """A worker scans batches of very many records. Raises OSError, RecordTooLarge."""
    record: TimestampOffset | None = None
    try:
        scan = next(search)
        while True:
            scan = search.send((yield Offload(scan, ends_with_client=ends_with_client)))
    except StopIteration as end:
        record = end.value
    return record
