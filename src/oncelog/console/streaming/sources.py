"""The events of searches and live tails, as ``event_streams`` sends them to browsers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import MIB
from oncelog.client.blocking.client import LATEST, Client
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.errors import ClientError
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.console.page import Asked
from oncelog.console.records.decoding import FORMATS, Decoder
from oncelog.console.records.read_lock import ANSWER_MS, turn
from oncelog.console.records.record_states import UNDECIDED, UNREADABLE, StoredRecord, stored_records
from oncelog.console.records.search import Hit, Progress, ShownHit, search
from oncelog.console.records.search_rows import hit_of, progress_of, search_of, shown_hit
from oncelog.console.records.transaction_outcomes import Outcomes, Settled
from oncelog.console.streaming.event_streams import Event
from oncelog.console.streaming.pump import Stopped
from oncelog.records.batch import iter_headers

TAIL_ROWS: Final = 100
"""Records of one answer that a tail shows; of more it says how many were left out."""
_POLL_MS: Final = 500


def searching(client: Client, asked: Asked, stopped: Stopped) -> Iterator[Event]:
    """A search, as an address names it."""
    query = asked.query
    value_format = query.choice("value_format", FORMATS)

    def shown(hit: Hit) -> ShownHit:
        return shown_hit(hit, Decoder(asked.decoding), value_format)

    for found in search(client, *search_of(client, query), stopped, shown):
        if isinstance(found, Progress):
            yield Event("progress", {"progress": progress_of(found, query)})
        elif isinstance(found, Settled):
            yield _settled(found)
        elif isinstance(found, ShownHit):
            yield Event("hit", {"hit": found.row})


def tailing(client: Client, asked: Asked, stopped: Stopped) -> Iterator[Event]:
    """The records that a topic gets from now on, and the outcomes of their transactions."""
    query = asked.query
    topic, value_format = query.needed("topic"), query.choice("value_format", FORMATS)
    chosen = [TopicPartition(TopicName(topic), partition) for partition in client.topic(topic).partitions]
    positions = {one: found.offset for one, found in client.list_offsets(dict.fromkeys(chosen, LATEST)).items()}
    fetcher = Fetcher(client, FetchSettings(max_wait_ms=_POLL_MS, max_bytes=4 * MIB, partition_max_bytes=MIB))
    outcomes = Outcomes()
    yield Event("state", {"text": f"waiting for records in {len(chosen)} partitions"})
    try:
        fetcher.assign(positions)
        while not stopped():
            fetcher.wait(_POLL_MS)
            with turn():
                events = [
                    event
                    for fetched in fetcher.arrived(ANSWER_MS)
                    for event in _events_of(fetched, outcomes, Decoder(asked.decoding), value_format)
                ]
            yield from events
    finally:
        fetcher.close()


def _events_of(fetched: Fetched, outcomes: Outcomes, decoder: Decoder, value_format: str) -> Iterator[Event]:
    """The events of an answer. Raises ClientError."""
    if fetched.error_code:
        raise ClientError(f"{fetched.partition} cannot be read any more: error {fetched.error_code}")
    rows, settled, left_out = _met(fetched, outcomes)
    for row in rows:
        yield Event("hit", {"hit": hit_of(Hit(fetched.partition, row), decoder, value_format)})
    if left_out:
        yield Event("state", {"text": f"{left_out} more records of {fetched.partition} are not shown"})
    for one in settled:
        yield _settled(one)


def _met(fetched: Fetched, outcomes: Outcomes) -> tuple[list[StoredRecord], list[Settled], int]:
    """The records of an answer that are shown, what became of those shown before, and how many are left out."""
    rows: dict[int, StoredRecord] = {}
    settled: list[Settled] = []
    left_out = 0
    for at, header in iter_headers(fetched.records):
        if header.next_offset <= fetched.position:
            continue
        if header.is_control:
            for one in outcomes.settled_by(fetched, at, header):
                if one.offset in rows:
                    rows[one.offset] = replace(rows[one.offset], state=one.state)
                else:
                    settled.append(one)
            continue
        if len(rows) >= TAIL_ROWS:
            left_out += max(header.record_count, 0)  # Its producer says so; nothing is made by it.
            continue
        for row in stored_records(fetched, at, header, UNDECIDED):
            if row.offset < fetched.position and row.state != UNREADABLE:
                continue
            if len(rows) >= TAIL_ROWS:
                left_out += 1
                continue
            rows[row.offset] = row
            if row.state == UNDECIDED:
                outcomes.wait_for(fetched.partition, header.producer_id, row.offset)
    return [*rows.values()], settled, left_out


def _settled(one: Settled) -> Event:
    return Event("settled", {"partition": one.where.partition, "offset": one.offset, "state": one.state})
