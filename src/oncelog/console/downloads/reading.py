"""The read loop of a download, response by response, up to the bounds; and the notice of one that was cut."""

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
from oncelog.console.downloads.selection import Selection
from oncelog.console.downloads.states import States
from oncelog.console.records.read_lock import ANSWER_MS, held
from oncelog.console.streaming.pump import Stopped
from oncelog.records.batch import CODEC_MASK, iter_headers

FETCH_BYTES: Final = 2 * MIB
PARTITION_BYTES: Final = MIB  # Small: writing takes longer than fetching, and waiting responses take memory.
_POLL_MS: Final = 300
Limits = Mapping[TopicPartition, int]
_LARGE_PACKED: Final = 256 * KIB  # A larger compressed batch may expand to far more than a response.
_MAX_UNREADABLE: Final = 20


class Remaining:
    def __init__(self, records: int, size_bytes: int) -> None:
        self.records = records
        self.size_bytes = size_bytes
        self.unreadable: list[str] = []

    def is_full(self) -> bool:
        return self.records <= 0 or self.size_bytes <= 0

    def take(self, records: int, size_bytes: int) -> None:
        self.records -= records
        self.size_bytes -= size_bytes

    def add_unreadable(self, reason: str) -> None:
        if len(self.unreadable) < _MAX_UNREADABLE:
            self.unreadable.append(reason)


class Writer(Protocol):
    """A file format. With ``needs_lock`` every response is written under the read lock."""

    needs_lock: bool

    def take(self, fetched: Fetched, states: Mapping[int, str], until: int, remaining: Remaining) -> int:
        """Write the records below ``until``; returns the offset after the last one written."""

    def end(self, notice: Mapping[str, Any] | None) -> None:
        """Write the end of the file, with a notice if it is incomplete."""

    def written(self) -> Iterator[bytes]:
        """Take the bytes written since the last call; until then they are not in memory."""


def written(client: Client, selection: Selection, writer: Writer, stopped: Stopped) -> Generator[bytes, None, None]:
    """Yield the bytes of a file. Raises ClientError, and CorruptBatch from columns."""
    states = States()
    states.read_markers(client, selection, stopped)
    remaining = Remaining(selection.most_records, selection.most_bytes)
    at = dict(selection.start)
    parts = [(selection.stable, True)] if selection.committed else [(selection.stable, True), (selection.until, False)]
    for limits, decided in parts:
        until = {partition: min(limits[partition], selection.until[partition]) for partition in at}
        begin = {partition: position for partition, position in at.items() if position < until[partition]}
        if not begin or remaining.is_full():
            continue
        fetcher = Fetcher(client, FetchSettings(_POLL_MS, 1, FETCH_BYTES, PARTITION_BYTES, read_committed=decided))

        def take(answers: list[Fetched], until: Limits = until, decided: bool = decided) -> None:
            for answer in answers:
                if answer.error_code:
                    raise BrokerRefused(answer.error_code, f"records of {answer.partition}")
                at[answer.partition] = writer.take(
                    answer, states.of(answer, decided), until[answer.partition], remaining
                )
                if remaining.is_full():
                    return

        try:
            fetcher.assign(begin, until)
            while len(fetcher) and not remaining.is_full() and not stopped():
                # Wait without the lock, so that a slow broker blocks no other reader.
                fetcher.wait(_POLL_MS)
                with held():
                    answers = fetcher.arrived(ANSWER_MS)
                    if writer.needs_lock or any(map(_is_heavy, answers)):
                        take(answers)
                        answers = []
                take(answers)
                # Free the responses before the pieces are sent, which may take long.
                del answers
                yield from writer.written()
        finally:
            fetcher.close()
    with held():
        writer.end(notice_of(selection, at, remaining))
    yield from writer.written()


def _is_heavy(fetched: Fetched) -> bool:
    """True if a response may take much memory: it is large, or has a batch that may expand."""
    return len(fetched.records) > FETCH_BYTES or any(
        header.attributes & CODEC_MASK and header.size_bytes > _LARGE_PACKED
        for _, header in iter_headers(fetched.records)
    )


def notice_of(selection: Selection, at: Mapping[TopicPartition, int], remaining: Remaining) -> dict[str, Any] | None:
    rest = {partition: offset for partition, offset in at.items() if offset < selection.until[partition]}
    if not rest and not remaining.unreadable:
        return None
    notice: dict[str, Any] = {"complete": False, "records": selection.most_records - remaining.records}
    if rest:
        done = {partition: selection.until[partition] for partition in at} | rest
        positions = ",".join(f"{partition.partition}:{offset}" for partition, offset in sorted(done.items()))
        notice |= {
            "reason": f"one download is limited to {selection.most_records} records and "
            f"{selection.most_bytes} bytes of keys, values and headers",
            "next": {str(partition.partition): offset for partition, offset in sorted(rest.items())},
            "go_on": f"{selection.path}?{urlencode(selection.kept | {'positions': positions})}",
        }
    if remaining.unreadable:
        notice["unreadable"] = remaining.unreadable
    return notice
