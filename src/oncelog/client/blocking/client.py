"""A client of one cluster: offsets, fetching and producing in one thread. Links and retries are ``cluster``'s."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.cluster import ClusterClient
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.errors import BrokerRefused, UnsupportedRequest
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.client.machine.requests import list_offsets_request, produce_request, produce_version_limit
from oncelog.wire.chunks import Buffer

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3


class ListedOffset(NamedTuple):
    """An answer of ListOffsets; offset −1 when no record is that late."""

    offset: int
    timestamp: int
    leader_epoch: int


class Produced(NamedTuple):
    """The offset at which a batch was appended; ``log_append_time`` −1 unless the broker sets timestamps."""

    base_offset: int
    log_append_time: int
    log_start_offset: int


class Client(ClusterClient):
    """A client; use it as a context manager, from one thread."""

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, ListedOffset]:
        """The first offset at or after a timestamp in milliseconds; −1 is the latest, −2 earliest, −3 max timestamp.

        One request to each leader. Raises UnknownTopic, BrokerRefused and what ``request`` does.
        """
        found: dict[TopicPartition, ListedOffset] = {}

        def attempt() -> None:
            missing = [partition for partition in wanted if partition not in found]
            grouped = self.by_leader(missing)
            sent = []
            for broker, partitions in grouped.items():
                link = self.link(broker)
                message = list_offsets_request(self.view, wanted, partitions, read_committed)
                version = link.versions.choose(message, old=True)
                if version == 0 and any(wanted[partition] >= 0 for partition in partitions):
                    raise UnsupportedRequest(
                        f"{link.address} is too old to find offsets by time (Kafka 0.10.1 and later can)"
                    )
                sent.append((link, link.submit(message, version)))
            refused: BrokerRefused | None = None
            for link, correlation_id in sent:
                response = link.decode(link.response(correlation_id))
                refused = _take_listed(response, found) or refused
            if refused is not None:
                raise refused

        self.retrying(attempt)
        return found

    def fetch(
        self,
        positions: Mapping[TopicPartition, int],
        *,
        until: Mapping[TopicPartition, int] | None = None,
        settings: FetchSettings | None = None,
    ) -> Iterator[Fetched]:
        """Raw batches from ``positions`` on, as they arrive; ends when every partition is at its ``until``.

        Without ``until`` it goes on for ever, yielding partitions with no records after each idle wait, so that the
        caller can stop. A partition with a final ``error_code`` is yielded once and not asked for again. The next
        request to a broker is sent before its last response is yielded.
        """
        fetcher = Fetcher(self, settings or FetchSettings())
        fetcher.assign(positions, until)
        try:
            while len(fetcher):
                yield from fetcher.poll()
        finally:
            fetcher.close()

    def produce(
        self, partition: TopicPartition, batch: Buffer, *, acks: int = -1, timeout_ms: int = 30_000
    ) -> Produced | None:
        """Append one batch (records batch v2, whole). None for acks=0, which is not answered.

        Retried on what may pass; only a batch of an idempotent producer is then sure not to be appended twice.
        """

        def attempt() -> Produced | None:
            link = self.link(self.leader(partition))
            message = produce_request(self.view, {partition: batch}, acks, timeout_ms)
            version = link.versions.choose(message, produce_version_limit(self.view, [partition]))
            correlation_id = link.submit(message, version, answered=acks != 0)
            if acks == 0:
                return None
            response = link.decode(link.response(correlation_id))
            answer = response.responses[0].partition_responses[0]
            if answer.error_code:
                raise BrokerRefused(answer.error_code, f"produce to {partition}", answer.error_message)
            return Produced(answer.base_offset, answer.log_append_time_ms, answer.log_start_offset)

        return self.retrying(attempt)


def _take_listed(response: Any, found: dict[TopicPartition, ListedOffset]) -> BrokerRefused | None:
    refused = None
    for topic in response.topics:
        for one in topic.partitions:
            partition = TopicPartition(topic.name, one.partition_index)
            if one.error_code:
                refused = BrokerRefused(one.error_code, f"offsets of {partition}")
            else:
                offset = one.old_style_offsets[0] if one.old_style_offsets else one.offset
                found[partition] = ListedOffset(offset, one.timestamp, one.leader_epoch)
    return refused
