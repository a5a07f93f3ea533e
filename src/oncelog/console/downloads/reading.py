"""The records of a download, answer by answer, up to its bounds; and the notice of one that was cut."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any, Final, Protocol
from urllib.parse import urlencode

from oncelog.base.ids import TopicPartition
from oncelog.base.units import KIB, MIB
from oncelog.client.blocking.client import Client
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.console.downloads import PATH
from oncelog.console.downloads.selection import Selection
from oncelog.console.downloads.states import States
from oncelog.console.records.read_lock import ANSWER_MS, turn
from oncelog.console.streaming.pump import Stopped
from oncelog.records.batch import CODEC_MASK, iter_headers

FETCH_BYTES: Final = 2 * MIB
PARTITION_BYTES: Final = MIB
"""Small answers: writing takes longer than fetching, and what waits takes memory."""
_POLL_MS: Final = 300
Limits = Mapping[TopicPartition, int]
_LARGE_PACKED: Final = 256 * KIB
"""Bytes of a compressed batch from which on it may become much more than an answer has."""
_MOST_UNREADABLE: Final = 20


class Left:
    """The room that a download has left; ``next_offset`` of an answer is where it was full."""

    def __init__(self, records: int, size_bytes: int) -> None:
        self.records = records
        self.size_bytes = size_bytes
        self.unreadable: list[str] = []

    def is_full(self) -> bool:
        return self.records <= 0 or self.size_bytes <= 0

    def take(self, records: int, size_bytes: int) -> None:
        self.records -= records
        self.size_bytes -= size_bytes

    def note(self, what: str) -> None:
        if len(self.unreadable) < _MOST_UNREADABLE:
            self.unreadable.append(what)


class Writer(Protocol):
    """A format of files. ``takes_turns``: whatever is written, it is written in a turn of the console's."""

    takes_turns: bool

    def take(self, fetched: Fetched, states: Mapping[int, str], until: int, left: Left) -> int:
        """Write an answer's records below ``until``; the offset that comes after what was written."""

    def end(self, notice: Mapping[str, Any] | None) -> None:
        """Write the end of the file, with a notice if it does not have everything."""

    def written(self) -> Iterator[bytes]:
        """The bytes that were written since the last time; they are not in memory before."""


def written(client: Client, selection: Selection, writer: Writer, stopped: Stopped) -> Generator[bytes, None, None]:
    """The bytes of a file. Raises ClientError, and CorruptBatch from columns."""
    states = States()
    states.look_ahead(client, selection, stopped)
    left = Left(selection.most_records, selection.most_bytes)
    at = dict(selection.start)
    parts = [(selection.stable, True)] if selection.committed else [(selection.stable, True), (selection.until, False)]
    for limits, decided in parts:
        until = {where: min(limits[where], selection.until[where]) for where in at}
        begin = {where: position for where, position in at.items() if position < until[where]}
        if not begin or left.is_full():
            continue
        fetcher = Fetcher(client, FetchSettings(_POLL_MS, 1, FETCH_BYTES, PARTITION_BYTES, read_committed=decided))

        def take(answers: list[Fetched], until: Limits = until, decided: bool = decided) -> None:
            for answer in answers:
                if answer.error_code:
                    raise BrokerRefused(answer.error_code, f"records of {answer.partition}")
                at[answer.partition] = writer.take(answer, states.of(answer, decided), until[answer.partition], left)
                if left.is_full():
                    return

        try:
            fetcher.assign(begin, until)
            while len(fetcher) and not left.is_full() and not stopped():
                fetcher.wait(_POLL_MS)
                with turn():
                    answers = fetcher.arrived(ANSWER_MS)
                    if writer.takes_turns or any(map(_is_heavy, answers)):
                        take(answers)
                        answers = []
                take(answers)
                del answers
                yield from writer.written()
        finally:
            fetcher.close()
    with turn():
        writer.end(notice_of(selection, at, left))
    yield from writer.written()


def _is_heavy(fetched: Fetched) -> bool:
    """True if working on an answer may take much memory: it is large, or has a batch that may become large."""
    return len(fetched.records) > FETCH_BYTES or any(
        header.attributes & CODEC_MASK and header.size_bytes > _LARGE_PACKED
        for _, header in iter_headers(fetched.records)
    )


def notice_of(selection: Selection, at: Mapping[TopicPartition, int], left: Left) -> dict[str, Any] | None:
    """The notice of a download that does not have everything, None of one that does."""
    rest = {where: offset for where, offset in at.items() if offset < selection.until[where]}
    if not rest and not left.unreadable:
        return None
    notice: dict[str, Any] = {"complete": False, "records": selection.most_records - left.records}
    if rest:
        done = {where: selection.until[where] for where in at} | rest
        positions = ",".join(f"{where.partition}:{offset}" for where, offset in sorted(done.items()))
        notice |= {
            "reason": f"one download has at most {selection.most_records} records and "
            f"{selection.most_bytes} bytes of keys, values and headers",
            "next": {str(where.partition): offset for where, offset in sorted(rest.items())},
            "go_on": f"{PATH}?{urlencode(selection.kept | {'positions': positions})}",
        }
    if left.unreadable:
        notice["unreadable"] = left.unreadable
    return notice
