"""Sources of events: searches and live tails, sent to browsers by ``event_streams``."""

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
from oncelog.console.page import PageRequest
from oncelog.console.records.decoding import FORMATS, Decoder
from oncelog.console.records.read_lock import ANSWER_MS, held
from oncelog.console.records.record_states import UNDECIDED, UNREADABLE, StoredRecord, stored_records
from oncelog.console.records.search import Hit, Progress, ShownHit, search
from oncelog.console.records.search_rows import hit_of, progress_of, search_of, shown_hit
from oncelog.console.records.transaction_outcomes import Outcomes, Settled
from oncelog.console.streaming.event_streams import Event
from oncelog.console.streaming.pump import Stopped
from oncelog.records.batch import iter_headers

TAIL_ROWS: Final = 100  # A tail shows at most this many records of one response, and counts the others.
_POLL_MS: Final = 500


def searching(client: Client, page_request: PageRequest, stopped: Stopped) -> Iterator[Event]:
    query = page_request.query
    value_format = query.choice("value_format", FORMATS)

    def show(hit: Hit) -> ShownHit:
        return shown_hit(hit, Decoder(page_request.decoding), value_format)

    for event in search(client, *search_of(client, query), stopped, show):
        if isinstance(event, Progress):
            yield Event("progress", {"progress": progress_of(event, query)})
        elif isinstance(event, Settled):
            yield _settled(event)
        elif isinstance(event, ShownHit):
            yield Event("hit", {"hit": event.row})


def tailing(client: Client, page_request: PageRequest, stopped: Stopped) -> Iterator[Event]:
    """The records appended to a topic from now on, and the outcomes of their transactions."""
    query = page_request.query
    topic, value_format = query.needed("topic"), query.choice("value_format", FORMATS)
    chosen = [TopicPartition(TopicName(topic), partition) for partition in client.topic(topic).partitions]
    positions = {
        partition: listed.offset for partition, listed in client.list_offsets(dict.fromkeys(chosen, LATEST)).items()
    }
    fetcher = Fetcher(client, FetchSettings(max_wait_ms=_POLL_MS, max_bytes=4 * MIB, partition_max_bytes=MIB))
    outcomes = Outcomes()
    yield Event("state", {"text": f"waiting for records in {len(chosen)} partitions"})
    try:
        fetcher.assign(positions)
        while not stopped():
            fetcher.wait(_POLL_MS)
            with held():
                events = [
                    event
                    for fetched in fetcher.arrived(ANSWER_MS)
                    for event in _events_of(fetched, outcomes, Decoder(page_request.decoding), value_format)
                ]
            yield from events
    finally:
        fetcher.close()


def _events_of(fetched: Fetched, outcomes: Outcomes, decoder: Decoder, value_format: str) -> Iterator[Event]:
    """The events of a fetch response. Raises ClientError."""
    if fetched.error_code:
        raise ClientError(f"{fetched.partition} can no longer be read: error {fetched.error_code}")
    rows, settled, left_out = _scan_fetched(fetched, outcomes)
    for row in rows:
        yield Event("hit", {"hit": hit_of(Hit(fetched.partition, row), decoder, value_format)})
    if left_out:
        yield Event("state", {"text": f"{left_out} more records of {fetched.partition} are not shown"})
    for outcome in settled:
        yield _settled(outcome)


def _scan_fetched(fetched: Fetched, outcomes: Outcomes) -> tuple[list[StoredRecord], list[Settled], int]:
    """The records to show, the outcomes of earlier ones, and the number of records left out."""
    rows: dict[int, StoredRecord] = {}
    settled: list[Settled] = []
    left_out = 0
    for at, header in iter_headers(fetched.records):
        if header.next_offset <= fetched.position:
            continue
        if header.is_control:
            for outcome in outcomes.settled_by(fetched, at, header):
                if outcome.offset in rows:
                    rows[outcome.offset] = replace(rows[outcome.offset], state=outcome.state)
                else:
                    settled.append(outcome)
            continue
        if len(rows) >= TAIL_ROWS:
            left_out += max(header.record_count, 0)  # The count is the producer's claim and is only shown.
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


def _settled(outcome: Settled) -> Event:
    return Event(
        "settled", {"partition": outcome.partition.partition, "offset": outcome.offset, "state": outcome.state}
    )
