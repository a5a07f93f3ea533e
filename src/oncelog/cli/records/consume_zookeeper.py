"""``oncelog consume --zookeeper``: prints the records of topics, reading like Kafka's old high-level consumer.

Only offsets of printed and flushed records are committed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

from oncelog.base.ids import TopicPartition
from oncelog.cli.records.offset_range import stop_offsets
from oncelog.cli.support.offset_or_time import Start
from oncelog.cli.support.terminal import print_line
from oncelog.cli.support.zookeeper_options import ZooKeeperOptions

if TYPE_CHECKING:
    from oncelog.cli.records.record_output import Sink
    from oncelog.client.machine.positions import FetchSettings

_RESETS = {"beginning": "smallest", "end": "largest"}


def consume_zookeeper(
    options: ZooKeeperOptions,
    group: str | None,
    topics: list[str],
    sink: Sink,
    start: Start,
    fetch: FetchSettings,
    settings: dict[str, str],
    *,
    stop_at_end: bool,
    quiet: bool,
) -> None:
    from oncelog.client.zookeeper import ZooKeeperConsumer

    if group is None:
        raise typer.BadParameter("consuming through ZooKeeper needs a group; name it with --group")
    zookeeper, subscription = options.zookeeper or "", options.subscription(topics)
    settings = settings | options.settings()
    if start.keyword in _RESETS:
        settings = {"auto.offset.reset": _RESETS[start.keyword]} | settings
    ends: dict[TopicPartition, int] = {}
    is_assigned = False

    def assigned(positions: Mapping[TopicPartition, int]) -> None:
        nonlocal is_assigned
        is_assigned = bool(positions)
        ends.clear()
        if stop_at_end and positions:
            with consumer.new_client() as client:
                ends.update(stop_offsets(client, positions, None, True, fetch.read_committed) or {})
        if not quiet and sys.stderr.isatty():
            names = ", ".join(map(str, sorted(positions))) or "nothing"
            print_line(f"% group {group}: assigned {names}", err=True)

    def remark(text: str) -> None:
        if not quiet:
            print_line(f"% group {group}: {text}", err=True)

    with ZooKeeperConsumer(
        zookeeper, group, subscription, properties=settings, fetch=fetch, on_assigned=assigned, on_remark=remark
    ) as consumer:
        while not sink.is_full():
            for fetched in consumer.poll():
                sink.deliver(fetched, consumer.processed)
                if sink.is_full():
                    break
            if is_assigned and stop_at_end and all((consumer.position(p) or 0) >= end for p, end in ends.items()):
                break
