"""Artefacts of a broker, in files and in records of internal topics, and how each reader meets a later version."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from oncelog.base.ids import TopicId, TransactionalId
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
from oncelog.legacy.message_set.entry import append_entry
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
from oncelog.sim.virtual.files import MemoryFiles
from oncelog.storage import checkpoints, file_names, log_directory, meta_properties, producer_snapshots
from oncelog.storage.errors import CorruptFile, UnknownVersion, UnusableDirectory
from oncelog.storage.index import transaction_index
from oncelog.storage.log_config import LogConfig
from oncelog.storage.log_directory import LogDirectory
from oncelog.storage.transactions import transactional_ids
from tests.unit.storage.support import PARTITION, World, batch

_LOG: Final = "t-0/00000000000000000000.log"


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


def _later(value: bytes) -> bytes:
    """A value of version 9."""
    return (9).to_bytes(2, "big") + value[2:]


def _passed_over(shard: GroupShard | ShareStateShard, key: bytes, value: bytes, _: Path) -> None:
    shard.apply(key, _later(value))
    raise Skipped(*shard.skipped)


_offset = partial(
    _passed_over,
    GroupShard(0, GroupSettings()),
    group_records.encode_offset_commit_key("g", "t", 0),
    group_records.encode_offset_commit_value(group_records.OffsetCommitValue(1, -1, "", 0)),
)
_group = partial(_passed_over, GroupShard(0, GroupSettings()), group_records.encode_group_metadata_key("g"), b"")
_consumer_group = partial(
    _passed_over,
    GroupShard(0, GroupSettings()),
    consumer_group_records.encode_key(consumer_group_records.ConsumerGroupKey("g")),
    consumer_group_records.encode_value(consumer_group_records.ConsumerGroupValue(1, 0)),
)
_share_group = partial(
    _passed_over,
    GroupShard(0, GroupSettings()),
    share_group_records.encode_key(share_group_records.ShareGroupKey("g")),
    share_group_records.encode_value(share_group_records.ShareGroupValue(1, 0)),
)
_share_state = partial(
    _passed_over,
    ShareStateShard(0, ShareStateSettings(), lambda _topic: 1),
    share_state_records.encode_key(share_state_records.SnapshotKey("g", TopicId(bytes(16)), 0)),
    share_state_records.encode_value(share_state_records.SnapshotValue(0, 0, 0, 0)),
)


def _transaction(_: Path) -> None:
    store = TransactionStore()
    store.load(transaction_records.encode_key(TransactionalId("x")), _later(b""))
    raise Skipped(*store.skipped)


def _recording(_: Path) -> None:
    line = {"what": "begin", "format": flight_recorder.FORMAT + 1}
    flight_recorder.read_recording([json.dumps(line).encode() + b"\n"])


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
        "has format 4",
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
)
