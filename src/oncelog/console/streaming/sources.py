"""Sources of events: searches and live tails, sent to browsers by ``event_streams``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oncelog.client.blocking.client import Client
from oncelog.client.errors import ClientError
from oncelog.console.page import PageRequest
from oncelog.console.records.decoding import FORMATS, Decoder
from oncelog.console.records.record_filter import RecordFilter
from oncelog.console.records.record_query import COMMITTED_ONLY, filter_of, partitions_of
from oncelog.console.records.search import Hit, Progress, ShownHit, search
from oncelog.console.records.search_rows import hit_of, progress_of, search_of, shown_hit
from oncelog.console.records.tail import Tail
from oncelog.console.records.transaction_outcomes import Settled
from oncelog.console.streaming.event_streams import Event
from oncelog.console.streaming.pump import Stopped

_AGAIN_MS: Final = 1000


def searching(client: Client, page_request: PageRequest, stopped: Stopped) -> Iterator[Event]:
    query = page_request.query
    value_format = query.choice("value_format", FORMATS)

    def show(hit: Hit) -> ShownHit:
        return shown_hit(hit, Decoder(page_request.decoding, registry=page_request.registry), value_format)

    record_filter, positions, bounds = search_of(client, query)
    for event in search(client, record_filter, positions, bounds, stopped, show):
        if isinstance(event, Progress):
            yield Event("progress", {"progress": progress_of(event, query)})
        elif isinstance(event, Settled):
            yield _settled(event, record_filter)
        elif isinstance(event, ShownHit):
            yield Event("hit", {"hit": event.row})


def tailing(client: Client, page_request: PageRequest, stopped: Stopped) -> Iterator[Event]:
    """The records appended from now on, and the outcomes of their transactions. While the cluster does not answer, the
    tail waits; then it goes on where it was."""
    query = page_request.query
    record_filter, value_format = filter_of(query), query.choice("value_format", FORMATS)
    chosen = partitions_of(client, query)
    waiting = Event("state", {"text": f"waiting for records in {len(chosen)} partitions"})

    def show(hit: Hit) -> Event:
        return Event(
            "hit", {"hit": hit_of(hit, Decoder(page_request.decoding, registry=page_request.registry), value_format)}
        )

    with Tail(client, chosen, record_filter, query.text("state") == COMMITTED_ONLY) as tail:
        yield waiting
        while not stopped():
            try:
                events = tail.step(show)
            except ClientError as error:
                if not client.cluster.may_pass(error):
                    raise
                yield Event(
                    "state", {"text": f"no answer from the cluster ({error}); the tail goes on when it is back"}
                )
                client.system.sleep(_AGAIN_MS)
                continue
            if tail.has_resumed:
                yield waiting
            for event in events:
                yield _settled(event, record_filter) if isinstance(event, Settled) else _event(event)


def _event(event: Event | str) -> Event:
    return Event("state", {"text": event}) if isinstance(event, str) else event


def _settled(outcome: Settled, record_filter: RecordFilter) -> Event:
    is_wanted = record_filter.allows(outcome.state)
    return Event(
        "settled",
        {
            "partition": outcome.partition.partition,
            "offset": outcome.offset,
            "state": outcome.state,
            "is_wanted": is_wanted,
        },
    )
