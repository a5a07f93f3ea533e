"""Mirrors on the console's page: what they have copied, and how far they were behind."""

from __future__ import annotations

import pytest

from oncelog.mirror.errors import MirrorIncomplete
from oncelog.mirror.overview import mirrored_partitions
from tests.interop.mirror.conftest import Side, mirror
from tests.unit.console.visits import visiting

pytestmark = pytest.mark.slow


def test_positions_lag_and_groups_are_shown(source: Side, target: Side) -> None:
    source.create("orders", 2)
    source.send("orders", "a", "b", "c")
    source.commit("billing", "orders", 2)
    mirror(source, target)
    [first, second] = mirrored_partitions(target.client)
    assert (first.source, first.topic, first.target, first.position) == ("a", "orders", "a.orders", 3)
    assert (first.lag, first.records, first.gaps, first.groups, second.records) == (0, 3, 0, 1, 0)
    with visiting(target.broker.bootstrap_servers) as visitor:
        assert "a.orders" in visitor.get("/mirrors").text
        rows = visitor.get("/mirrors.json", params={"source": "a"}).json()
        assert rows["sources"]["a"]["records"] == 3
        assert [item["records"] for item in rows["mirrored"]["rows"]] == [3, 0]
    with visiting(source.broker.bootstrap_servers) as visitor:
        assert "No mirror copies into this cluster" in visitor.get("/mirrors").text


def test_the_record_at_which_a_partition_stands_is_shown(source: Side, target: Side) -> None:
    source.create("m")
    source.send("m", "small", "x" * 30_000)
    target.create("a.m", configs={"max.message.bytes": "10000"})
    with pytest.raises(MirrorIncomplete):
        mirror(source, target, sync_configs=False)
    with visiting(target.broker.bootstrap_servers) as visitor:
        assert "m-0 of a stands at offset 1: a.m-0 at the target refuses the record" in visitor.get("/mirrors").text
