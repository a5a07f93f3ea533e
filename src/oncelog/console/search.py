"""A search through all records of some partitions, told step by step: hits, and how far it is.

The rule: "nothing found" is said only when everything up to the end at the start was read; an end before that names the
offsets where it goes on. A batch is unpacked once, and its records are looked at one by one only if its bytes have what
is looked for: keys, values and headers lie in one piece in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from oncelog.base.ids import TopicPartition
from oncelog.base.units import MIB
from oncelog.client.blocking.client import Client
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.console.record_states import LARGEST_BATCH
from oncelog.records.batch import iter_headers
from oncelog.records.errors import CorruptBatch
from oncelog.records.record import Record, records_data, records_in

PLACES: Final = ("anywhere", "key", "value", "header")
MOST_HITS: Final = 200
_POLL_MS: Final = 300


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for, and where: bytes that a key, a value, or the name or value of a header contains."""

    needle: bytes
    place: str = "anywhere"

    def is_in(self, record: Record) -> bool:
        """True if a record has it."""
        key, value = self.place in ("anywhere", "key"), self.place in ("anywhere", "value")
        return (
            (key and record.key is not None and self.needle in record.key)
            or (value and record.value is not None and self.needle in record.value)
            or (self.place in ("anywhere", "header") and any(self._in_header(*one) for one in record.headers))
        )

    def _in_header(self, name: str, value: bytes | None) -> bool:
        return self.needle in name.encode() or (value is not None and self.needle in value)


@dataclass(frozen=True, slots=True)
class Hit:
    """A record that has it. Whether its transaction was committed is for the page of its offset to say."""

    where: TopicPartition
    record: Record
    is_transactional: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """``done`` of ``total`` offsets are read; ``positions`` is where each partition goes on. ``complete``: all was
    read. ``unreadable`` names batches that could not be looked into."""

    done: int
    total: int
    positions: Mapping[TopicPartition, int]
    hits: int
    complete: bool = False
    unreadable: tuple[str, ...] = ()


def search(
    client: Client,
    wanted: Wanted,
    positions: Mapping[TopicPartition, int],
    until: Mapping[TopicPartition, int],
    stopped: Callable[[], bool],
) -> Iterator[Hit | Progress]:
    """Hits, and a Progress after each answer; the last one says whether it is complete. Raises ClientError."""
    fetcher = Fetcher(client, FetchSettings(max_wait_ms=_POLL_MS, max_bytes=32 * MIB, partition_max_bytes=4 * MIB))
    at = {where: min(position, until[where]) for where, position in positions.items()}
    total = sum(until[where] - position for where, position in at.items())
    hits, unreadable = 0, []
    try:
        fetcher.assign(at, until)
        while len(fetcher) and hits < MOST_HITS and not stopped():
            for fetched in fetcher.poll(_POLL_MS):
                if fetched.error_code:
                    raise BrokerRefused(fetched.error_code, f"records of {fetched.partition}")
                next_offset = fetched.next_offset
                for found in hits_of(fetched, wanted, until[fetched.partition]):
                    if isinstance(found, str):
                        unreadable.append(found)
                        continue
                    yield found
                    hits += 1
                    if hits >= MOST_HITS:
                        next_offset = found.record.offset + 1
                        break
                at[fetched.partition] = min(next_offset, until[fetched.partition])
                if hits >= MOST_HITS:
                    break
            done = total - sum(until[where] - position for where, position in at.items())
            yield Progress(done, total, dict(at), hits, False, tuple(unreadable[:20]))
    finally:
        fetcher.close()
    complete = all(position >= until[where] for where, position in at.items())
    done = total - sum(until[where] - position for where, position in at.items())
    yield Progress(done, total, dict(at), hits, complete, tuple(unreadable[:20]))


def hits_of(fetched: Fetched, wanted: Wanted, until: int) -> Iterator[Hit | str]:
    """The records of an answer that have it, below ``until``; a sentence for each batch that cannot be read."""
    for at, header in iter_headers(fetched.records):
        if header.is_control or header.next_offset <= fetched.position:
            continue
        try:
            data = records_data(fetched.records, at, header, LARGEST_BATCH)
            if wanted.needle not in data:
                continue
            for record in records_in(data, header):
                if fetched.position <= record.offset < until and wanted.is_in(record):
                    yield Hit(fetched.partition, record, header.is_transactional)
        except CorruptBatch as error:
            yield f"{fetched.partition}, the batch at offset {header.base_offset}: {error}"
