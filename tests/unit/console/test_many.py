"""A group of 20,000 partitions: its page has a hundred rows, the right totals, and bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

import pytest

from oncelog.admin.groups import GroupDescription, MemberRow
from oncelog.admin.transactions.partition_offsets import Bounds
from oncelog.base.ids import NO_TOPIC_ID, BrokerId, LeaderEpoch, TopicName, TopicPartition
from oncelog.base.units import MIB
from oncelog.client.blocking import Client, Committed
from oncelog.client.blocking.client import LATEST
from oncelog.client.machine.metadata import PartitionInfo, TopicInfo
from oncelog.client.programs import Cluster
from oncelog.console.page import PageRequest
from oncelog.console.pages import groups
from oncelog.console.query import Query
from oncelog.console.settings import Settings
from tests.interop.admin.lab import at
from tests.memory import peak_bytes
from tests.programs import program_of

pytestmark = pytest.mark.slow
PARTITIONS = 20_000
MEMBERS = PARTITIONS // 100
MAX_BYTES = 20 * MIB
"""Beside what a console takes for itself."""


@cache
def places() -> list[TopicPartition]:
    """All partitions; not made by workers that do not run this."""
    return [at(f"topic-{number // 1000:03}", number % 1000) for number in range(PARTITIONS)]


def metadata(*_: object) -> dict[TopicName, TopicInfo]:
    """A cluster of so many partitions."""
    partitions = {index: PartitionInfo(index, BrokerId(1), LeaderEpoch(0), (1,), (1,), ()) for index in range(1000)}
    return {name: TopicInfo(name, NO_TOPIC_ID, partitions) for name in {place.topic for place in places()}}


def offsets_at(_: object, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Each partition begins at 5 and ends at 20."""
    return {partition: 20 if time == LATEST else 5 for partition, time in times.items()}


def described(client: Client, group: str) -> GroupDescription:
    members = [MemberRow(f"m-{n}", None, "c", "h", tuple(places()[n * 100 : (n + 1) * 100])) for n in range(MEMBERS)]
    return GroupDescription(group, "Stable", "classic", "consumer", "range", 1, members)


def bounds(client: Client, partitions: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, Bounds], list[object]]:
    return {partition: Bounds(20, 20) for partition in partitions}, []


def test_a_group_of_twenty_thousand_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "describe_group", described)
    monkeypatch.setattr(groups, "bounds_of", bounds)
    committed = {place: Committed(11) for place in places()}
    monkeypatch.setattr("oncelog.admin.groups.committed_offsets", program_of(lambda client, group: dict(committed)))
    monkeypatch.setattr(Cluster, "metadata", program_of(metadata))
    monkeypatch.setattr("oncelog.admin.log_bounds.offsets_at", program_of(offsets_at))
    request = PageRequest(Query({"name": "all", "page": str(PARTITIONS // 100)}), Settings("x"))
    results = []
    peak = peak_bytes(lambda: results.append(groups.read_one(Client("127.0.0.1:9"), request)), MAX_BYTES)
    result = results[-1]
    assert (result["lag"], result["readable"], result["members"]) == (9 * PARTITIONS, 9 * PARTITIONS, MEMBERS)
    rows = result["partitions"]["rows"]
    assert (len(rows), result["partitions"]["pages"]) == (100, PARTITIONS // 100)
    assert (rows[-1]["topic"], rows[-1]["partition"], rows[-1]["log_start"]) == ("topic-019", 999, 5)
    assert (len(result["group"].members), len(result["group"].members[0].partitions), result["assigned"][0]) == (
        100,
        20,
        100,
    )
    assert peak < MAX_BYTES, f"{peak / MIB:.0f} MiB"
