"""Each reader of a persisted artefact refuses an unknown version by name; docs/formats.md lists the artefacts."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import typer

from oncelog.admin import reassignment_plan
from oncelog.base.ids import GroupId, TopicName, TopicPartition
from oncelog.cli import sim
from oncelog.cli.log.backup import manifest
from oncelog.client.machine.offsets import Committed
from oncelog.console.audits import report
from oncelog.legacy.logs import import_positions
from oncelog.mirror import positions_topic
from oncelog.registry import topic_records
from oncelog.spark.audit import report as audit_report
from oncelog.spark.export import _Progress
from oncelog.spark.session.errors import SparkSourceError
from oncelog.spark.sink.options import parse_sink_options
from oncelog.spark.sink.row_digest import Digest, compare
from oncelog.spark.sink.two_phase import register_records
from oncelog.spark.sink.two_phase.register import Attempt, Register, RegisterState
from oncelog.spark.source import stream_position
from oncelog.spark.table import rename_journal
from oncelog.spark.table.directory import Table
from oncelog.spark.targets.format_table import FormatTable
from tests.unit import broker_artefacts
from tests.unit.broker_artefacts import Artefact

PAGE: Final = Path(__file__).parents[2] / "docs" / "formats.md"
_ROW: Final = re.compile(r"^\| (?P<name>[^|]+) \| (?P<place>[^|]+) \| (?P<version>[^|]+) \|", re.MULTILINE)


def _mirror(kind: str, fields: dict[str, object], _: Path) -> None:
    positions = positions_topic.Positions("__oncelog_mirror_a", 1)
    key = json.dumps([kind, "t", 0, "", 0]).encode()
    positions.apply(0, key, json.dumps({"v": positions_topic.FORMAT + 1, **fields}).encode())


def _import(_: Path) -> None:
    key = import_positions.ImportKey("old", "t")
    position = import_positions.ImportPosition(5, import_positions.Mark(1, 2), "")
    name, value = import_positions.to_record(key, 0, position)
    import_positions.from_records(key, [(name, value.replace(b'"version":1', b'"version":2'))])


def _schema(_: Path) -> None:
    key = topic_records.encode_key(topic_records.Key(topic_records.KeyType.SCHEMA, "s", 1))
    topic_records.decode_key(key.replace(b'"magic":1', b'"magic":2'))


def _register(_: Path) -> None:
    value = register_records.encode(Register(1, "run", RegisterState.DONE))
    register_records.decode(value.replace(b'"version":1', b'"version":3'))


def _ledger(_: Path) -> None:
    options = parse_sink_options({"kafka.bootstrap.servers": "localhost:9092", "topic": "t"})
    compare(Committed(3, -1, "later"), options, Attempt("q", 3, "run"), "0", Digest())


def _table_file(name: str, directory: Path) -> None:
    table = Table(directory)
    table.hidden.mkdir(exist_ok=True)
    content = json.dumps({"format": rename_journal.FORMAT + 1, "moves": [], "extra": {}})
    (table.hidden / name).write_text(content, encoding="utf-8")
    if name == "table.json":
        table.describe()
    elif name == "intent.json":
        rename_journal.RenameJournal.read(table.hidden / name, directory)
    else:
        (table.hidden / "exports").mkdir()
        (table.hidden / name).replace(table.hidden / "exports" / name)
        _Progress(table, name.removesuffix(".json"))


def _table_property(_: Path) -> None:
    class Later:
        def describe(self) -> dict[str, object]:
            return {"format": rename_journal.FORMAT + 1}

    table = FormatTable.__new__(FormatTable)
    table._target, table._address, table._description = Later(), "delta:t", None  # type: ignore[assignment]  # a fake
    table.describe()


def _dump(directory: Path) -> None:
    path = directory / "dump.json"
    path.write_text(json.dumps({"format": sim.DUMP_FORMAT + 1, "plan": "", "seed": 1}), encoding="utf-8")
    sim._read_dump(path)


def _audit_report(_: Path) -> None:
    assert report.FORMAT == audit_report.FORMAT
    document = {"format": report.FORMAT + 1, "read": {}, "transactions": {}, "findings": {}, "listed": []}
    report.read_report(json.dumps(document).encode())


def _plan(_: Path) -> None:
    reassignment_plan.parse_assignment(json.dumps({"version": reassignment_plan.VERSION + 1, "partitions": [{}]}))


def _position(_: Path) -> None:
    stream_position.Position.from_json({"t": {"0": 1}, stream_position.FORMAT_NOTE: stream_position.FORMAT + 1})


def _backup(directory: Path) -> None:
    writer = manifest.ManifestWriter(
        directory / manifest.MANIFEST, manifest.Header("c", [1], "cluster.db", "", "9.9", format=manifest.FORMAT + 1)
    )
    writer.finish()
    manifest.Manifest(directory)


ARTEFACTS: Final = (
    *broker_artefacts.ARTEFACTS,
    Artefact(
        "mirror positions",
        str(positions_topic.FORMAT),
        partial(_mirror, "map", {"runs": []}),
        positions_topic.PositionsDamaged,
        "has format 2, .* run the mirror with the version",
    ),
    Artefact(
        "imports", str(import_positions.VERSION), _import, import_positions.OldLogError, "a later version of oncelog"
    ),
    Artefact(
        "schemas",
        " and ".join(map(str, topic_records.MAGICS)),
        _schema,
        topic_records.UnreadableRecord,
        "SCHEMA has the magic 2, and this version reads 0 and 1",
    ),
    Artefact(
        "sink register", str(register_records.VERSION), _register, SparkSourceError, "version 3, .* update oncelog"
    ),
    Artefact("sink ledger", "none", _ledger, SparkSourceError, "'later', which .* continue the query with the version"),
    Artefact(
        "Spark checkpoint",
        str(stream_position.FORMAT),
        _position,
        SparkSourceError,
        "have format 2, .* continue the query",
    ),
    Artefact(
        "table",
        str(rename_journal.FORMAT),
        partial(_table_file, "table.json"),
        SparkSourceError,
        "table.json has format 2",
    ),
    Artefact(
        "table journal",
        str(rename_journal.FORMAT),
        partial(_table_file, "intent.json"),
        SparkSourceError,
        "use the version",
    ),
    Artefact(
        "exports of a table",
        str(rename_journal.FORMAT),
        partial(_table_file, "x.json"),
        SparkSourceError,
        "x.json has format 2",
    ),
    Artefact(
        "Delta and Iceberg tables",
        str(rename_journal.FORMAT),
        _table_property,
        SparkSourceError,
        "oncelog.table of delta:t",
    ),
    Artefact(
        "audit report", str(report.FORMAT), _audit_report, report.BadReport, "has format 2, .* open it with the version"
    ),
    Artefact(
        "backup",
        str(manifest.FORMAT),
        _backup,
        manifest.BackupError,
        r"a backup of format 2, .* use the version that made it \(9\.9\)",
    ),
    Artefact(
        "reassignment plan",
        str(reassignment_plan.VERSION),
        _plan,
        reassignment_plan.PlanRefused,
        "version 2 is not supported; use 1",
    ),
    Artefact(
        "simulator dump", str(sim.DUMP_FORMAT), _dump, typer.BadParameter, "has format 2, .* replay it with the version"
    ),
)


@pytest.mark.parametrize("artefact", ARTEFACTS, ids=lambda artefact: artefact.name)
def test_a_later_version_is_refused_by_name(artefact: Artefact, tmp_path: Path) -> None:
    with pytest.raises(artefact.refusal, match=artefact.words):
        artefact.read(tmp_path)


@pytest.mark.parametrize(("kind", "fields"), [("gap", {"end": 3}), ("group", {"offset": 3})])
def test_every_record_of_a_mirror_has_a_format(kind: str, fields: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(positions_topic.PositionsDamaged, match="has format 2"):
        _mirror(kind, fields, tmp_path)


def test_records_of_a_mirror_without_a_format_are_those_of_the_first_one() -> None:
    positions = positions_topic.Positions("__oncelog_mirror_a", 1)
    partition = TopicPartition(TopicName("t"), 0)
    positions.apply(0, b'["map","t",0,"",0]', b'{"v":1,"target":"a.t","cluster":"c","runs":[0,0,1],"position":1}')
    positions.apply(0, b'["group","t",0,"","g"]', b'{"offset":3}')
    positions.finish()
    assert positions.partitions[partition].groups == {GroupId("g"): 3}


def test_the_page_has_these_versions() -> None:
    """Rows without a version of their own say why."""
    rows = {match["name"].strip(): match["version"].strip() for match in _ROW.finditer(PAGE.read_text("utf-8"))}
    versioned = {name: version for name, version in rows.items() if name in {entry.name for entry in ARTEFACTS}}
    assert versioned == {entry.name: entry.version for entry in ARTEFACTS}
    others = {name for name, version in rows.items() if name not in versioned and version not in ("version", "---")}
    assert all(rows[name] in ("none", "the directory's") for name in others), others
