"""`oncelog mirror` beside MirrorMaker 2 with exactly once: the same topic, between the same two brokers.

What counts is the time from the moment at which committed records are seen at the target to the last, and the records
of that time; the start of either is not in it. A record that says so is the last of every partition.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.peers.mirror_maker import MirrorMaker
from tests.peers.process import Process
from tests.waiting import wait_until

from bench.options import Options, progress
from bench.peers import Broker, create_topics, delete_topics, running
from bench.report import Comparison, Figures, paired
from bench.workloads import produce
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client, FetchSettings, Producer
from oncelog.client.errors import UnknownTopic
from oncelog.client.machine.consumed_records import read_fetched

_PARTITIONS: Final = 4
_LAST: Final = b"the last"
_GOALS: Final = {"records/s": "≥ 3 ×", "CPU s/million records": "≤ 0.3 ×", "peak memory, MB": "≤ 0.25 ×"}


def mirror(options: Options) -> Comparison:
    """Records of 100 B in four partitions from one broker to another, beside MirrorMaker 2 with exactly once."""
    return _mirror(options, 100, options.scaled(2_000_000))


def mirror_1000(options: Options) -> Comparison:
    """The same with records of 1 KB."""
    return _mirror(options, 1000, options.scaled(400_000))


def _mirror(options: Options, record_bytes: int, count: int) -> Comparison:
    with (
        TemporaryDirectory(prefix="oncelog-bench-") as directory,
        running(options.ours.broker(Path(directory, "from"))) as source,
        running(options.ours.broker(Path(directory, "to"))) as target,
    ):
        (topic,) = create_topics(source, 1, _PARTITIONS, "mirrored")
        for partition in range(_PARTITIONS):
            produce(source, topic, record_bytes, count // _PARTITIONS, partition=partition)
        with Client(source.bootstrap_servers) as client, Producer(client) as producer:
            for partition in range(_PARTITIONS):
                producer.send(topic, _LAST, partition=partition)

        def ours(number: int) -> Figures:
            options = ["--source", f"o{number}={source.bootstrap_servers}", "--target", target.bootstrap_servers]
            command = [sys.executable, "-m", "oncelog", "mirror", *options, "--topics", topic, "--quiet"]
            process = Process(command, Path(directory, "mirror.log"))
            return _measured(target, process, f"o{number}.{topic}", count)

        def theirs(number: int) -> Figures:
            servers = source.bootstrap_servers, target.bootstrap_servers
            maker = MirrorMaker(f"m{number}", *servers, topic, Path(directory, "mm2"))
            return _measured(target, maker.process, f"m{number}.{topic}", count)

        title = f"A mirror, {count:,} records of {record_bytes} B, {_PARTITIONS} partitions"
        comparison = Comparison(title, "oncelog mirror", "MirrorMaker 2", _GOALS)
        return paired(comparison, (ours, theirs), options.repeat, progress)


def _measured(target: Broker, process: Process, topic: str, count: int) -> Figures:
    try:
        with Client(target.bootstrap_servers) as client:
            wait_until(lambda: _ends(client, topic), process.log_tail, poll_s=0.02)
            began, cpu = time.perf_counter(), process.cpu_seconds()
            values = sum(_ends(client, topic).values())
            wait_until(lambda: _is_complete(client, topic), process.log_tail, poll_s=0.05)
            elapsed, used = time.perf_counter() - began, process.cpu_seconds() - cpu
        return {
            "records/s": (count - values) / elapsed,
            "CPU s/million records": used / (count - values) * 1e6,
            "CPU s from its start": process.cpu_seconds(),
            "peak memory, MB": process.peak_resident_bytes() / 1e6,
        }
    finally:
        process.kill()
        delete_topics(target, [topic])


def _ends(client: Client, topic: str) -> dict[TopicPartition, int]:
    """The partitions with committed records, and where these end."""
    try:
        expected = {TopicPartition(TopicName(topic), number): -1 for number in client.topic(topic).partitions}
        offsets = client.list_offsets(expected, read_committed=True)
    except UnknownTopic:
        return {}
    return {partition: one.offset for partition, one in offsets.items() if one.offset > 0}


def _is_complete(client: Client, topic: str) -> bool:
    ends = _ends(client, topic)
    starts = {partition: max(0, end - 3) for partition, end in ends.items()}
    if len(ends) < _PARTITIONS:
        return False
    fetched = client.fetch(starts, until=ends, settings=FetchSettings(read_committed=True))
    records = (record for item in fetched for record in read_fetched(item, read_committed=True))
    return len({record.partition for record in records if record.value == _LAST}) == _PARTITIONS
