"""A load's topics in the cluster: their ids, and where each partition's log begins and ends."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.base.ids import TopicPartition, uuid_text
from oncelog.client.blocking import Client
from oncelog.client.machine.requests import offset_query
from oncelog.spark.jobs.load_plan import PartitionState
from oncelog.spark.jobs.load_report import LoadRequest
from oncelog.spark.jobs.load_table import TableFiles
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.plan.offset_planner import OffsetPlanner, open_client
from oncelog.spark.table.directory import topic_label


class ClusterLog:
    """The offsets and topic ids of a load's topics, asked of the cluster."""

    def __init__(self, options: SourceOptions, request: LoadRequest) -> None:
        self._options, self._request = options, request

    def topic_ids(self) -> dict[str, str]:
        """Topic → id as Apache Kafka prints it, "" where the cluster has none."""
        with open_client(self._options) as client:
            infos = [client.topic(topic) for topic in self._request.topics]
        return {info.name: uuid_text(info.topic_id) if any(info.topic_id) else "" for info in infos}

    def states(self, table: TableFiles) -> list[PartitionState]:
        """Every partition's files, log start and end, and offset at the time asked for."""
        with open_client(self._options) as client:
            planner = OffsetPlanner(client, self._options)
            partitions = planner.partitions()
            files = table.files(partitions)  # before the ends: another writer may go on, beyond those
            topic_ids = planner.topic_ids(partitions)
            earliest, latest = planner.earliest(partitions), planner.latest(partitions)
            ends = planner.high_watermarks(partitions) if self._options.read_committed else latest
            since = self._offsets_at(client, partitions, latest)
        return [
            PartitionState(
                one,
                files.get((topic_label(one.topic), one.partition), []),
                earliest[one],
                latest[one],
                since.get(one),
                ends[one],
                topic_ids.get(one.topic, ""),
            )
            for one in partitions
        ]

    def _offsets_at(
        self, client: Client, partitions: list[TopicPartition], latest: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        if self._request.from_ms is None:
            return {}
        listed = client.list_offsets(
            dict.fromkeys(partitions, offset_query(self._request.from_ms)), read_committed=self._options.read_committed
        )
        return {one: listed[one].offset if listed[one].offset >= 0 else latest[one] for one in partitions}
