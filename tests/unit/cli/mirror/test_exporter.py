"""A mirror's metrics are those of the documentation, with its labels."""

from __future__ import annotations

import re
from pathlib import Path

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.cli.mirror.exporter import MirrorCollector
from oncelog.client.machine.positions import Fetched
from oncelog.mirror.offset_map import MappedRun, OffsetMap
from oncelog.mirror.positions_topic import CopiedPartition
from oncelog.mirror.progress import GroupState, Progress, RefusalRow

DOCUMENTATION = Path(__file__).parents[4] / "docs" / "metrics.md"
WHERE = TopicPartition(TopicName("t"), 3)


def test_every_metric_is_documented_and_true() -> None:
    progress = Progress("a")
    offsets = OffsetMap(0, MappedRun(0, 0, 0))
    offsets.extend([MappedRun(0, 10, 5)], 5)
    progress.owned([CopiedPartition(WHERE, "", "a.t", "c", offsets)])
    progress.fetched(Fetched(WHERE, memoryview(b""), 9, 7, 0, [], 0, 5, 5))
    progress.committed(5, 400)
    progress.refusals[WHERE] = RefusalRow("a", "t", 3, 5, "a.t", ErrorCode.INVALID_TIMESTAMP, "it stands")
    samples = [sample for family in MirrorCollector([progress]).collect() for sample in family.samples]
    values = {(sample.name, *sample.labels.values()): sample.value for sample in samples}
    assert values["oncelog_mirror_records_total", "a"] == 5
    assert values["oncelog_mirror_bytes_total", "a"] == 400
    assert values["oncelog_mirror_position", "a", "t", "3"] == 5
    assert values["oncelog_mirror_lag", "a", "t", "3"] == 2
    assert values["oncelog_mirror_refused", "a", "t", "3", "INVALID_TIMESTAMP"] == 1
    assert sum(name[0] == "oncelog_mirror_group_offsets" for name in values) == len(GroupState)
    assert {sample.name: set(sample.labels) for sample in samples} == documented()


def documented() -> dict[str, set[str]]:
    results: dict[str, set[str]] = {}
    for line in DOCUMENTATION.read_text("utf-8").partition("\n## A mirror\n")[2].splitlines():
        row = re.match(r"\| (`oncelog_[^|]*) \| ([^|]*)\|", line)
        if row:
            labels = {label for label in row[2].replace(",", " ").split() if label}
            results.update(dict.fromkeys(re.findall(r"`(\w+)`", row[1]), labels))
    return results
