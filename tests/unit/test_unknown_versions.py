"""Each reader of a persisted artefact refuses an unknown version by name; docs/formats.md lists the artefacts."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import typer

from oncelog.admin import reassignment_plan
from oncelog.base.ids import GroupId, TopicId, TopicName, TopicPartition, TransactionalId
from oncelog.cli import sim
from oncelog.cli.log.backup import manifest
from oncelog.client.machine.offsets import Committed
from oncelog.console.audits import report
from oncelog.coordination.change_codec import DamagedJournal
from oncelog.coordination.memory import MemoryTree
from oncelog.coordination.sqlite import database
from oncelog.coordination.zookeeper import journal
from oncelog.core.controller.brokers import tree_format
from oncelog.core.controller.image import layout
from oncelog.core.groups.settings import GroupSettings
from oncelog.core.groups.shard import GroupShard
from oncelog.core.share_state.settings import ShareStateSettings
from oncelog.core.share_state.shard import ShareStateShard
from oncelog.core.transactions.store import TransactionStore
from oncelog.legacy.logs import import_positions
from oncelog.legacy.message_set.entry import append_entry
from oncelog.mirror import positions_topic
from oncelog.node.assembly import Outside, StartRefused, assemble
from oncelog.node.listeners.broker_settings import read_settings
from oncelog.node.observation import flight_recorder
from oncelog.ports import Create
from oncelog.records import batch as record_batch
from oncelog.records.internal import (
    consumer_group_records,
    group_records,
    share_group_records,
    share_state_records,
    transaction_records,
)
from oncelog.registry import topic_records
from oncelog.sim.virtual.files import MemoryFiles
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
from oncelog.storage import checkpoints, file_names, log_directory, meta_properties, producer_snapshots
from oncelog.storage.errors import CorruptFile, UnknownVersion, UnusableDirectory
from oncelog.storage.index import transaction_index
from oncelog.storage.log_config import LogConfig
from oncelog.storage.log_directory import LogDirectory
from oncelog.storage.transactions import transactional_ids
from tests.unit.storage.support import PARTITION, World, batch

PAGE: Final = Path(__file__).parents[2] / "docs" / "formats.md"
_LOG: Final = "t-0/00000000000000000000.log"
_ROW: Final = re.compile(r"^\| (?P<name>[^|]+) \| (?P<place>[^|]+) \| (?P<version>[^|]+) \|", re.MULTILINE)


class Artefact(NamedTuple):
    """A row of the page, the version of the code, and how a later version is read."""

    name: str
    version: str
    read: Callable[[Path], object]
    refusal: type[Exception]
    words: str
    """The refusal names the artefact, the version and the way out."""


def _reopened(path: str, content: Callable[[bytes], bytes]) -> LogDirectory:
    """Open a closed data directory after a change of one file. Raises what the start does."""
    world = World()
    world.append(batch(producer=7, epoch=0, sequence=0, transactional=True), verified=True, transactional_id="owner")
    world.directory.transactions.write_ids(world.log)
    world.leader_epoch = 1
    world.append(batch())
    world.sync()
    world.directory.logs_may_have_gaps()
    world.directory.checkpoint_log_starts({PARTITION: world.log.log_start_offset})
    world.directory.close()
    before = {name: world.memory.content(name) for name in world.files.list("") if name != "t-0"}
    assert path in before or path.startswith("t-0/")
    world.memory.overwrite(path, content(world.memory.content(path)))
    try:
        return LogDirectory.open(world.files, config_of=lambda _: LogConfig(), now_ms=world.now_ms)
    except UnusableDirectory:
        # Nothing has been removed: the version that wrote it still starts cleanly.
        assert {name for name in world.files.list("") if name != "t-0"} == before.keys()
        if path != file_names.CLEAN_SHUTDOWN:
            assert world.memory.content(file_names.CLEAN_SHUTDOWN) == before[file_names.CLEAN_SHUTDOWN]
        raise


def _in_log(name: str, content: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda _: _reopened(f"t-0/{name}", content)


def _in_root(name: str, content: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda _: _reopened(name, content)


def _later_checkpoint(content: bytes) -> bytes:
    assert content.startswith(b"0\n")
    return b"1" + content[1:]


def _old_messages(_: bytes) -> bytes:
    """A message of format 1 (Apache Kafka 0.10), whole and sound."""
    data = bytearray()
    append_entry(data, 0, 1, 0, 1_700_000_000_000, b"k", b"v")
    return bytes(data)


def _meta(_: Path) -> None:
    files = MemoryFiles()
    meta_properties.write_meta_properties(files, meta_properties.MetaProperties("c", 1, "d"))  # type: ignore[arg-type]  # ids of any kind
    content = files.content(file_names.META_PROPERTIES)
    files.overwrite(file_names.META_PROPERTIES, content.replace(b"oncelog.version=1", b"oncelog.version=2"))
    meta_properties.read_meta_properties(files)


def _database(directory: Path) -> None:
    path = directory / "cluster.db"
    for connection in database.open_database(path):
        connection.close()
    with sqlite3.connect(path) as changed:
        changed.execute(f"PRAGMA user_version={database.FORMAT_VERSION + 1}")
    changed.close()
    database.open_database(path)


def _tree(_: Path) -> None:
    session = MemoryTree().session()
    session.commit(
        [Create("/oncelog", b""), Create(layout.TREE_FORMAT, b"%d" % (tree_format.KNOWN_FORMATS.newest + 1))]
    )
    session.commit([Create("/cluster", b""), Create(layout.CLUSTER_ID, layout.cluster_id_value("c" * 22))])

    class Entropy:
        def token(self, size: int) -> bytes:
            return bytes(size)

    outside = Outside(MemoryFiles(), session, Entropy())
    assemble(outside, read_settings({"log.sync.policy": "none"}), {"PLAINTEXT": ("localhost", 9092)}, now_ms=0)


def _journal_entry(_: Path) -> None:
    entry = journal.encode_entry("token", "1", [])
    journal.decode_entry(1, entry.replace(b'"format":1', b'"format":2'))


class Skipped(Exception):
    """A coordinator passes a record over, and its broker logs the reason."""


def _passed_over(skipped: Counter[str]) -> None:
    raise Skipped(*skipped)


def _later(value: bytes) -> bytes:
    """A value of version 9."""
    return (9).to_bytes(2, "big") + value[2:]


def _offset(_: Path) -> None:
    shard = GroupShard(0, GroupSettings())
    value = group_records.encode_offset_commit_value(group_records.OffsetCommitValue(1, -1, "", 0))
    shard.apply(group_records.encode_offset_commit_key("g", "t", 0), _later(value))
    _passed_over(shard.skipped)


def _group(_: Path) -> None:
    shard = GroupShard(0, GroupSettings())
    shard.apply(group_records.encode_group_metadata_key("g"), (9).to_bytes(2, "big"))
    _passed_over(shard.skipped)


def _consumer_group(_: Path) -> None:
    shard = GroupShard(0, GroupSettings())
    key = consumer_group_records.ConsumerGroupKey("g")
    value = consumer_group_records.encode_value(consumer_group_records.ConsumerGroupValue(1, 0))
    shard.apply(consumer_group_records.encode_key(key), _later(value))
    _passed_over(shard.skipped)


def _share_group(_: Path) -> None:
    shard = GroupShard(0, GroupSettings())
    key = share_group_records.ShareGroupKey("g")
    value = share_group_records.encode_value(share_group_records.ShareGroupValue(1, 0))
    shard.apply(share_group_records.encode_key(key), _later(value))
    _passed_over(shard.skipped)


def _share_state(_: Path) -> None:
    shard = ShareStateShard(0, ShareStateSettings(), lambda _topic: 1)
    key = share_state_records.SnapshotKey("g", TopicId(bytes(16)), 0)
    value = share_state_records.encode_value(share_state_records.SnapshotValue(0, 0, 0, 0))
    shard.apply(share_state_records.encode_key(key), _later(value))
    _passed_over(shard.skipped)


def _transaction(_: Path) -> None:
    store = TransactionStore()
    store.load(transaction_records.encode_key(TransactionalId("x")), (9).to_bytes(2, "big"))
    _passed_over(store.skipped)


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


def _recording(_: Path) -> None:
    line = {"what": "begin", "format": flight_recorder.FORMAT + 1}
    flight_recorder.read_recording([json.dumps(line).encode() + b"\n"])


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


def _transaction_index(_: Path) -> None:
    entry = transaction_index.AbortedTransaction(1, 2, 3, 4).encode()
    transaction_index.load_transaction_index(b"\0\1" + entry[2:], 0)


_checkpoint = partial(_in_root, content=_later_checkpoint)
_START = "start the broker with the version"
_OFFSETS = f"key {group_records.OFFSET_COMMIT_KEY_VERSION}, value {group_records.HIGHEST_VALUE_VERSION}"
_GROUPS = f"key {group_records.GROUP_METADATA_KEY_VERSION}, value {group_records.GROUP_METADATA_VALUE_VERSION}"
_CONSUMER_GROUPS = f"keys 3 to 8 and 16, value {consumer_group_records.VALUE_VERSION}"
_SHARE_GROUPS = (
    f"keys {min(share_group_records.KEY_TYPES)} to {max(share_group_records.KEY_TYPES)}, "
    f"value {consumer_group_records.VALUE_VERSION}"
)
_TRANSACTIONS = f"key {transaction_records.TRANSACTION_KEY_VERSION}, value {transaction_records.HIGHEST_VALUE_VERSION}"

ARTEFACTS: Final = (
    Artefact(
        "data directory", str(meta_properties.FORMAT_VERSION), _meta, UnusableDirectory, rf"oncelog.version=2.*{_START}"
    ),
    Artefact(
        "segments",
        str(record_batch.MAGIC),
        _in_log(file_names.segment_file(0, ".log"), _old_messages),
        UnusableDirectory,
        r"t-0/0+\.log has messages of format 1 .* reads format 2: choose another data directory",
    ),
    Artefact(
        "indexes of aborted transactions",
        str(transaction_index.VERSION),
        _transaction_index,
        CorruptFile,
        "of version 1",
    ),
    Artefact(
        "producer snapshots",
        str(producer_snapshots.VERSION),
        _in_log("00000000000000000002.snapshot", lambda content: b"\0\2" + content[2:]),
        UnknownVersion,
        rf"2\.snapshot has version 2, .* reads 1: {_START}.*rebuilt from the segments",
    ),
    Artefact(
        "owners of open transactions",
        str(transactional_ids.VERSION),
        _in_log(transactional_ids.FILE_NAME, lambda content: b"OTI2" + content[4:]),
        UnknownVersion,
        rf"t-0/transactional-ids has version 2.*{_START}",
    ),
    Artefact(
        "recovery points", str(checkpoints.VERSION), _checkpoint(file_names.RECOVERY_POINTS), UnknownVersion, _START
    ),
    Artefact(
        "high watermarks", str(checkpoints.VERSION), _checkpoint(file_names.HIGH_WATERMARKS), UnknownVersion, _START
    ),
    Artefact("log starts", str(checkpoints.VERSION), _checkpoint(file_names.LOG_START_OFFSETS), UnknownVersion, _START),
    Artefact(
        "cleaned offsets", str(checkpoints.VERSION), _checkpoint(file_names.CLEANER_OFFSETS), UnknownVersion, _START
    ),
    Artefact(
        "leader epochs",
        str(checkpoints.VERSION),
        _in_log(file_names.LEADER_EPOCHS, _later_checkpoint),
        UnknownVersion,
        rf"t-0/leader-epoch-checkpoint has version 1.*{_START}",
    ),
    Artefact(
        "topic id",
        str(checkpoints.VERSION),
        _in_log(file_names.PARTITION_METADATA, lambda content: content.replace(b"version: 0", b"version: 1")),
        UnknownVersion,
        rf"t-0/partition\.metadata has version 1.*{_START}",
    ),
    Artefact(
        "clean stop",
        str(log_directory.CLEAN_SHUTDOWN_VERSION),
        _in_root(file_names.CLEAN_SHUTDOWN, lambda content: content.replace(b'"version":0', b'"version":1')),
        UnknownVersion,
        rf"kafka_cleanshutdown has version 1.*{_START}",
    ),
    Artefact(
        "flight recording",
        str(flight_recorder.FORMAT),
        _recording,
        flight_recorder.RecordingUnreadable,
        "has format 3",
    ),
    Artefact(
        "tree", str(tree_format.KNOWN_FORMATS.newest), _tree, StartRefused, "has format 3, .* start this broker with"
    ),
    Artefact(
        "tree in SQLite",
        str(database.FORMAT_VERSION),
        _database,
        database.TreeUnusable,
        rf"cluster\.db: it has format 3.*{_START}",
    ),
    Artefact(
        "journal in ZooKeeper",
        str(journal.FORMAT),
        _journal_entry,
        DamagedJournal,
        "a format that this version does not",
    ),
    Artefact("committed offsets", _OFFSETS, _offset, Skipped, "offset commit value of version 9"),
    Artefact("classic groups", _GROUPS, _group, Skipped, "group metadata value of version 9"),
    Artefact(
        "consumer groups", _CONSUMER_GROUPS, _consumer_group, Skipped, "ConsumerGroupKey with a value of version 9"
    ),
    Artefact("share groups", _SHARE_GROUPS, _share_group, Skipped, "ShareGroupKey with a value of version 9"),
    Artefact(
        "states of share groups",
        f"keys {share_state_records.SNAPSHOT_KEY_VERSION} and {share_state_records.UPDATE_KEY_VERSION}, "
        f"value {share_state_records.VALUE_VERSION}",
        _share_state,
        Skipped,
        "value of version 9",
    ),
    Artefact("transactions", _TRANSACTIONS, _transaction, Skipped, "value of version 9"),
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
