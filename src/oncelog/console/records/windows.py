"""The offsets that a list, a search or a download is about: of each partition from ``start`` to before ``until``."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from oncelog.admin.transactions.durations import moment_text
from oncelog.admin.transactions.partition_offsets import Bounds, bounds_of
from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import EARLIEST, Client
from oncelog.client.errors import ClientError
from oncelog.client.machine.requests import offset_query
from oncelog.client.programs.group import committed_offsets
from oncelog.console.query import BadQuery, Query
from oncelog.console.records.moments import local_text, zone_of
from oncelog.console.records.record_query import COMMITTED_ONLY, milliseconds_in, offset_in, partitions_of
from oncelog.console.records.record_states import OPEN

FIRST: Final = "first"
STABLE: Final = "stable"
END: Final = "end"
Offsets = dict[TopicPartition, int]


@dataclass(slots=True)
class Windows:
    """``start`` and ``until`` by partition, within the log. ``understood`` says what the times and the group mean;
    ``silent`` names partitions that did not answer, which are left out."""

    log_start: Offsets
    bounds: dict[TopicPartition, Bounds]
    start: Offsets = field(default_factory=dict)
    until: Offsets = field(default_factory=dict)
    understood: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)

    @property
    def stable(self) -> Offsets:
        return {partition: bound.last_stable_offset for partition, bound in self.bounds.items()}

    @property
    def ends(self) -> Offsets:
        return {partition: bound.end_offset for partition, bound in self.bounds.items()}

    def narrow(self, *, start: Offsets | None = None, until: Offsets | None = None) -> None:
        """Begin no earlier, and end no later; within the log."""
        starts, limits = start or {}, until or {}
        for partition, first in self.log_start.items():
            end = self.bounds[partition].end_offset
            low = max(self.start.get(partition, first), starts.get(partition, first))
            high = min(self.until.get(partition, end), limits.get(partition, end))
            self.start[partition] = min(low, end)
            self.until[partition] = max(min(low, end), high)

    def narrow_to_state(self, state: str) -> None:
        """Leave out offsets where no record has a state that ``state`` selects."""
        if state == COMMITTED_ONLY:
            self.narrow(until=self.stable)
        elif state == OPEN:
            self.narrow(start=self.stable)

    def require_all(self) -> None:
        """Raises ClientError if a partition did not answer."""
        if self.silent:
            raise ClientError(f"the topic cannot be read completely: {self.silent[0]}")


def windows_of(client: Client, query: Query) -> Windows:
    """The windows of an address: ``topic``, ``partition`` (default: all), ``from`` and ``to`` as offsets, times,
    ``first``, ``stable`` or ``end``, and ``group``: from its committed offsets. Raises BadQuery and ClientError."""
    chosen = partitions_of(client, query)
    infos = client.topic(query.text("topic")).partitions
    led = [partition for partition in chosen if infos[partition.partition].leader >= 0]
    bounds, unanswered = bounds_of(client, led)
    first = client.list_offsets(dict.fromkeys(bounds, EARLIEST)) if bounds else {}
    windows = Windows({partition: first[partition].offset for partition in bounds}, bounds)
    windows.silent = [str(item) for item in unanswered]
    windows.silent += [f"{partition} has no leader" for partition in chosen if partition not in led]
    windows.narrow(
        start=_offsets(client, query, "from", windows),
        until=_offsets(client, query, "to", windows),
    )
    if group := query.text("group"):
        windows.narrow(start=_committed(client, group, windows))
    return windows


def _offsets(client: Client, query: Query, name: str, windows: Windows) -> Offsets:
    """The offsets that ``from`` or ``to`` means, of each partition; empty without one."""
    text = query.text(name).strip()
    named = {"": {}, FIRST: windows.log_start, STABLE: windows.stable, END: windows.ends}
    if text in named:
        return named[text]
    if (offset := offset_in(text)) is not None:
        if len(windows.bounds) + len(windows.silent) > 1:
            raise BadQuery(f"{name}={text}: an offset applies to one partition; add partition=, or use a time")
        return dict.fromkeys(windows.bounds, offset)
    milliseconds = milliseconds_in(name, text, query.text("zone"))
    windows.understood.append(_said(name, milliseconds, query.text("zone")))
    listed = client.list_offsets(dict.fromkeys(windows.bounds, offset_query(milliseconds)))
    return {
        partition: windows.bounds[partition].end_offset if at.offset < 0 else at.offset
        for partition, at in listed.items()
    }


def _said(name: str, milliseconds: int, zone_name: str) -> str:
    zone = zone_of(zone_name)
    local = "" if zone is None else f" ({local_text(milliseconds, zone)})"
    until_now = milliseconds - int(time.time() * 1000)
    in_future = ", which is in the future" if until_now > 0 else ""
    return f"{'from' if name == 'from' else 'until'} {moment_text(milliseconds)}{local}{in_future}"


def _committed(client: Client, group: str, windows: Windows) -> Offsets:
    committed = committed_offsets(client, group)
    starts = {partition: committed[partition].offset for partition in windows.bounds if partition in committed}
    without = [partition.partition for partition in windows.bounds if partition not in committed]
    windows.understood.append(f"from the committed offsets of group {group!r}")
    if without:
        listed = ", ".join(map(str, without[:10])) + (f" and {len(without) - 10} more" if len(without) > 10 else "")
        noun = "partition" if len(without) == 1 else "partitions"
        windows.understood.append(f"from the first offset where the group has committed nothing: {noun} {listed}")
    behind = [at.partition for at, offset in starts.items() if offset > windows.bounds[at].end_offset]
    if behind:
        windows.understood.append(f"nothing of partition {behind[0]}: the group has committed an offset beyond its end")
    return starts
