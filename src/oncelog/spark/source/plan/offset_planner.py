"""Resolves options to offsets on the driver: a query's partitions, and its first and last offset in each.

A position that the log does not have raises a ``DataLoss``, or becomes the nearest offset if ``failOnDataLoss`` is
false.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from oncelog.base.ids import NO_TOPIC_ID, TopicPartition, uuid_text
from oncelog.client.blocking import Client
from oncelog.client.errors import UnknownTopic
from oncelog.client.machine.metadata import TopicInfo
from oncelog.client.machine.requests import offset_query
from oncelog.spark.session.errors import DataLoss, OptionError, SparkSourceError
from oncelog.spark.source.offset_ranges import Offsets
from oncelog.spark.source.options import EARLIEST, LATEST, AtOffsets, AtTimestamps, Bound, SourceOptions


def open_client(options: SourceOptions) -> Client:
    return Client(options.bootstrap_servers, config=options.client)


class OffsetPlanner:
    def __init__(self, client: Client, options: SourceOptions) -> None:
        self._client = client
        self._options = options

    def refresh(self, topics: Iterable[str] = ()) -> None:
        """Refresh the metadata of ``topics``, or of those subscribed by name, to see new partitions and deleted or
        recreated topics."""
        options = self._options
        names = list(topics) or [partition.topic for partition in options.assign] or list(options.subscribe)
        if names:
            self._client.metadata(names)

    def partitions(self, *, missing_topics: Literal["raise", "skip"] = "raise") -> list[TopicPartition]:
        """The partitions to read, sorted. Raises UnknownTopic for a subscribed topic that does not exist."""
        if self._options.assign:
            assigned = [partition for partition in self._options.assign if self._exists(partition, missing_topics)]
            return sorted(assigned)
        if self._options.subscribe_pattern is not None:
            pattern = re.compile(self._options.subscribe_pattern)
            everything = self._client.metadata().values()
            infos = [info for info in everything if not info.is_internal and pattern.fullmatch(info.name)]
        else:
            subscribed = (self._topic(name, missing_topics) for name in self._options.subscribe)
            infos = [info for info in subscribed if info is not None]
        return sorted(TopicPartition(info.name, number) for info in infos for number in info.partitions)

    def _topic(self, name: str, missing: Literal["raise", "skip"]) -> TopicInfo | None:
        try:
            return self._client.topic(name)
        except UnknownTopic:
            if missing == "raise":
                raise
            return None

    def _exists(self, partition: TopicPartition, missing: Literal["raise", "skip"]) -> bool:
        info = self._topic(partition.topic, missing)
        exists = info is not None and partition.partition in info.partitions
        if not exists and missing == "raise":
            raise OptionError(f"assigned partition {partition} does not exist")
        return exists

    def has_partition(self, partition: TopicPartition) -> bool:
        """True if the cluster has the partition. The client retries a missing topic for a while."""
        info = self._topic(partition.topic, "skip")
        return info is not None and partition.partition in info.partitions

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, str]:
        """The known ids of topics. Call this *before* fetching offsets: those of a topic recreated in between carry the
        old id, which the tasks will not find."""
        view = self._client.view.topics
        ids = {p.topic: view[p.topic].topic_id for p in partitions if p.topic in view and view[p.topic].exists}
        return {topic: uuid_text(topic_id) for topic, topic_id in ids.items() if topic_id != NO_TOPIC_ID}

    def at_or_after(self, partitions: Iterable[TopicPartition], timestamp_ms: int) -> Offsets:
        """The first offset at or after the time, or the log's end if no record matches."""
        return self._resolve(AtTimestamps(everywhere_ms=timestamp_ms), list(partitions), "timestamp", LATEST)

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._list(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._list(dict.fromkeys(partitions, LATEST))

    def starting(self, partitions: list[TopicPartition], default: Bound) -> Offsets:
        bound = self._options.starting or default
        no_match = None if not self._options.latest_when_no_timestamp_matches else LATEST
        return self._resolve(bound, partitions, "startingOffsets", no_match)

    def ending(self, partitions: list[TopicPartition]) -> Offsets:
        """The offset before which to end in each partition; the log's end for a time past the last record."""
        return self._resolve(self._options.ending or AtOffsets("latest"), partitions, "endingOffsets", LATEST)

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> Offsets:
        query = dict.fromkeys(partitions, LATEST)
        listed = self._client.list_offsets(query) if query else {}
        return {partition: listed[partition].offset for partition in query}

    def within_log(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Offsets:
        """Move ``start`` up to the log's start where records are gone. Raises DataLoss as configured, and also if the
        range exceeds the log's end; records of an open transaction are in the log."""
        # High watermarks, because records of open transactions are in the log although they are not stable yet.
        earliest, latest = self.earliest(start), self.high_watermarks(start)
        limited: Offsets = {}
        for partition, offset in start.items():
            first, last = earliest[partition], latest[partition]
            limited[partition] = offset
            if offset < first and end.get(partition, offset) > offset:
                self._lost(DataLoss(partition, offset, first, "retention (or a deletion) removed the earlier records"))
                limited[partition] = first
            wanted_end = max(offset, end.get(partition, offset))
            if wanted_end > last:
                self._lost(DataLoss(partition, wanted_end, last, "the log ends there (was the topic recreated?)"))
        return limited

    def _lost(self, loss: DataLoss) -> None:
        if self._options.fail_on_data_loss:
            raise loss

    def _resolve(self, bound: Bound, partitions: list[TopicPartition], option: str, no_match: int | None) -> Offsets:
        if isinstance(bound, AtTimestamps):
            return self._at_timestamps(bound, partitions, option, no_match)
        if bound.named is not None:
            return self._list(dict.fromkeys(partitions, EARLIEST if bound.named == "earliest" else LATEST))
        _check_all_given(bound.offsets, partitions, option)
        special = {partition: offset for partition, offset in bound.offsets.items() if offset < 0}
        return {**bound.offsets, **self._list(special)}

    def _at_timestamps(
        self, bound: AtTimestamps, partitions: list[TopicPartition], option: str, no_match: int | None
    ) -> Offsets:
        if bound.everywhere_ms is not None:
            timestamps: Mapping[TopicPartition, int] = dict.fromkeys(partitions, bound.everywhere_ms)
        else:
            timestamps = bound.timestamps_ms
            _check_all_given(timestamps, partitions, option + "ByTimestamp")
        matches = self._list({partition: offset_query(time_ms) for partition, time_ms in timestamps.items()})
        unmatched = [partition for partition, offset in matches.items() if offset < 0]
        if unmatched and no_match is None:
            partition = unmatched[0]
            raise SparkSourceError(
                f"No offset matched from request of topic-partition {partition} and timestamp {timestamps[partition]}. "
                "Name an earlier time, or set startingOffsetsByTimestampStrategy to latest to begin at its end."
            )
        return {**matches, **self._list(dict.fromkeys(unmatched, LATEST))}

    def _list(self, query: Mapping[TopicPartition, int]) -> Offsets:
        if not query:
            return {}
        listed = self._client.list_offsets(query, read_committed=self._options.read_committed)
        return {partition: listed[partition].offset for partition in query}


def _check_all_given(
    specified_offsets: Mapping[TopicPartition, int], partitions: list[TopicPartition], option: str
) -> None:
    if set(specified_offsets) != set(partitions):
        specified, assigned = (
            ", ".join(map(str, sorted(partitions_given))) for partitions_given in (specified_offsets, partitions)
        )
        raise OptionError(
            f"If {option} contains specific offsets, you must specify all TopicPartitions. "
            f"Use -1 for latest, -2 for earliest. Specified: {specified} Assigned: {assigned}"
        )
