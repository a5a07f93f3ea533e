"""The disk observer: directories that break one rule each, directories that come close, and Apache Kafka's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from oncelog.base.ids import GroupId, MemberId, Offset, TopicId, TopicName, TopicPartition
from oncelog.core.groups.consumer import records as group_records
from oncelog.core.groups.consumer.member import ConsumerMember
from oncelog.records.batch import read_header
from oncelog.records.builder import build_batch
from oncelog.records.internal.consumer_group_records import MemberKey
from oncelog.records.internal.group_records import (
    GroupMetadataValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
)
from oncelog.records.internal.transaction_records import TransactionValue, encode_key, encode_value
from oncelog.records.record import Record
from oncelog.runtime.data.disk_files import DiskFiles
from oncelog.sim.checkers.disk import recovery
from oncelog.sim.checkers.disk.logs import ChangingTopics
from oncelog.sim.checkers.disk.observer import check_disk
from oncelog.sim.checkers.wire.appends import AcknowledgedBatch
from oncelog.sim.virtual.files import MemoryFiles
from oncelog.storage.checkpoints import write_offsets, write_topic_id
from oncelog.storage.file_names import LOG_START_OFFSETS, segment_file
from oncelog.storage.log.read import read_batches
from oncelog.storage.log_config import LogConfig
from oncelog.storage.log_directory import LogDirectory
from tests.simulation.checkers.talk import NEW, OLD, batch, marker

KAFKA = Path(__file__).parents[2] / "unit/storage/kafka_4_3_1/data"
PARTITION, COORDINATOR = TopicPartition(TopicName("t"), 0), TopicPartition(TopicName("__transaction_state"), 0)
PRODUCER = 7
Found = dict[str, list[str]]


def data(at: int, sequence: int = 0, epoch: int = 0) -> bytes:
    return batch("v", at=at, producer=PRODUCER, epoch=epoch, sequence=sequence, transactional=True)


def end(at: int, epoch: int = 1, *, commit: bool = True, reign: int = 0) -> bytes:
    return marker(commit=commit, at=at, producer=PRODUCER, epoch=epoch, reign=reign)


def decided(at: int, epoch: int = 1, *, commit: bool = True, version: int = 2) -> bytes:
    """The Prepare record of a transaction on the partition."""
    status = 2 if commit else 3
    value = TransactionValue(PRODUCER, epoch, 1000, status, (("t", (0,)),), 0, 0, client_transaction_version=version)
    record = Record(-1, 0, encode_key("x"), encode_value(value, 1))
    return bytes(build_batch([record], base_offset=at, leader_epoch=0))


def directory(*batches: bytes, coordinator: Sequence[bytes] = (), topic_id: bytes = OLD, base: int = 0) -> MemoryFiles:
    files = MemoryFiles()
    for partition, content in ((PARTITION, batches), (COORDINATOR, coordinator)):
        if content:
            files.make_directory(str(partition))
            name = segment_file(base if partition == PARTITION else 0, ".log")
            files.open(f"{partition}/{name}", create=True).append(content)
            write_topic_id(files, str(partition), TopicId(topic_id))
    return files


def sent(content: bytes, offset: int, *, deleted_before: int = 0) -> AcknowledgedBatch:
    header = read_header(content)
    return AcknowledgedBatch(PARTITION, TopicId(OLD), offset, header.crc, header.batch_length, deleted_before)


def flipped(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def offsets_log(
    *records: tuple[bytes, bytes | None], later: Sequence[tuple[bytes, bytes | None]] = (), compacted: int = 0
) -> Found:
    """The directory of a group coordinator with a batch or two. ``compacted``: records missing from the later one."""
    files = MemoryFiles()
    files.make_directory("__consumer_offsets-0")
    entries = [Record(-1, 0, key, value) for key, value in records]
    batches = [bytes(build_batch(entries, base_offset=0, leader_epoch=0))]
    if later:
        first = len(records)
        entries = [Record(-1, 0, key, value) for key, value in later]
        last = first + len(later) - 1 + compacted
        batches.append(bytes(build_batch(entries, base_offset=first, leader_epoch=0, last_offset=last)))
    files.open(f"__consumer_offsets-0/{segment_file(0, '.log')}", create=True).append(batches)
    write_topic_id(files, "__consumer_offsets-0", TopicId(NEW))
    return check_disk(files)


def consumer_group(*owners: str, without: int = 0) -> list[tuple[bytes, bytes | None]]:
    """A group whose members all own one partition. ``without``: the number of records that are left out."""
    group_id = GroupId("g")
    members = [ConsumerMember(MemberId(owner), 3, 2, assigned={TopicId(OLD): {0: 3}}) for owner in owners]
    written = [
        group_records.epoch(group_id, 3, 7),
        *(group_records.subscription(group_id, member) for member in members),
        *(group_records.current_assignment(group_id, member) for member in members),
    ]
    return [group_records.encode(record) for record in written[without:]]


def epoch_record(number: int, metadata_hash: int) -> tuple[bytes, bytes | None]:
    return group_records.encode(group_records.epoch(GroupId("g"), number, metadata_hash))


CLASSIC_GROUP = encode_group_metadata_key("g"), encode_group_metadata_value(GroupMetadataValue("consumer", 3))
BOTH = data(0), end(1), data(2, epoch=1), end(3, epoch=2, commit=False)
DECIDED = decided(0), decided(1, epoch=2, commit=False)
PLANTED: list[tuple[str, Callable[[], Found]]] = [
    ("D1", lambda: check_disk(directory(batch("a"), flipped(batch("b", at=1))))),
    ("D2", lambda: check_disk(directory(batch("a"), batch("b", at=2)))),
    ("D3", lambda: check_disk(directory(batch("a")), acknowledged=[sent(batch("b"), 1)])),
    ("D3", lambda: check_disk(directory(batch("a")), acknowledged=[sent(batch("b"), 0)])),
    ("D3", lambda: check_disk(directory(batch("b", at=1), base=1), acknowledged=[sent(batch("a"), 0)])),
    ("D3", lambda: check_disk(MemoryFiles(), acknowledged=[sent(batch("a"), 0)])),
    ("D4", lambda: check_disk(directory(data(0), data(1)))),
    ("D5", lambda: check_disk(directory(data(0, epoch=1), data(1)))),
    ("D5", lambda: check_disk(directory(batch("a", leader_epoch=1), batch("b", at=1)), config_of=compacted)),
    ("D6", lambda: check_disk(directory(data(0), end(1, commit=False), coordinator=[decided(0)]))),
    ("D6", lambda: check_disk(directory(data(0), end(1), coordinator=[decided(0, commit=False)]))),
    ("D6", lambda: check_disk(directory(*BOTH, coordinator=[decided(0, epoch=2, commit=False)]))),
    ("D6", lambda: check_disk(directory(*BOTH, end(4, epoch=3), coordinator=DECIDED))),
    ("D7", lambda: check_disk(directory(data(0), coordinator=[decided(0)]), settled=True)),
    ("D7", lambda: check_disk(directory(*BOTH[:2], coordinator=DECIDED), settled=True)),
    ("D8", lambda: check_disk(directory(data(0), end(1), end(2), coordinator=[decided(0)]))),
    ("D11", lambda: offsets_log(*consumer_group("a"), CLASSIC_GROUP)),
    ("D11", lambda: offsets_log(*consumer_group("a", without=1))),
    ("D11", lambda: offsets_log(*consumer_group("a"), group_records.encode((MemberKey("g", "a"), None)))),
    ("D12", lambda: offsets_log(*consumer_group("a", "b"))),
    ("D13", lambda: offsets_log(*consumer_group("a"), later=[epoch_record(4, 7)])),
]


def compacted(_: TopicPartition) -> LogConfig:
    return LogConfig(cleanup_policy=("compact",))


@pytest.mark.parametrize(("rule", "found"), PLANTED, ids=lambda item: item if isinstance(item, str) else "")
def test_a_broken_rule_is_found_and_nothing_else(rule: str, found: Callable[[], Found]) -> None:
    assert [name.partition(" ")[0] for name in found()] == [rule]


def later_segment() -> Found:
    files = directory(batch("a"))
    files.open(f"{PARTITION}/{segment_file(2, '.log')}", create=True).append([batch("c", at=2)])
    return check_disk(files, torn=True)


CLOSE: dict[str, Callable[[], Found]] = {
    "the epoch rises with the topics": lambda: offsets_log(*consumer_group("a"), later=[epoch_record(4, 8)]),
    "the epoch rises with a member": lambda: offsets_log(
        *consumer_group("a"), later=[*consumer_group("b", without=1)[:1], epoch_record(4, 7)]
    ),
    "the epoch rose before": lambda: offsets_log(*consumer_group("a"), later=[epoch_record(5, 7)]),
    "the reason is compacted away": lambda: offsets_log(*consumer_group("a"), later=[epoch_record(4, 7)], compacted=1),
    "a consumer group": lambda: offsets_log(*consumer_group("a")),
    "a consumer group that has become classic": lambda: offsets_log(
        *consumer_group("a"), *((key, None) for key, _ in consumer_group("a")), CLASSIC_GROUP
    ),
    "two transactions": lambda: check_disk(directory(*BOTH, coordinator=DECIDED), settled=True),
    "a marker is still to come": lambda: check_disk(directory(*BOTH[:3], coordinator=DECIDED)),
    "a marker repeated after a restart": lambda: check_disk(
        directory(data(0), end(1), end(2, reign=1), coordinator=[decided(0)]), settled=True
    ),
    "a marker repeated after a start with the same epoch": lambda: check_disk(
        directory(data(0), end(1), end(2), coordinator=[decided(0)]), restarted_at_ms=[0]
    ),
    "older transactions share an epoch": lambda: check_disk(
        directory(
            *(data(0), end(1, epoch=0), data(2, 1), end(3, epoch=0), end(4, epoch=0, commit=False)),
            coordinator=[decided(0, 0, version=0), decided(1, 0, version=0), decided(2, 0, commit=False, version=0)],
        ),
        settled=True,
    ),
    "an administrator's abort": lambda: check_disk(
        directory(data(0), end(1, epoch=0, commit=False), end(2, commit=False), coordinator=[decided(0, commit=False)])
    ),
    "a torn end": lambda: check_disk(directory(batch("a"), batch("b", at=1)[:-3]), torn=True),
    "a later segment reached the disk": later_segment,
    "rubble at the end": lambda: check_disk(directory(batch("a"), bytes(100)), torn=True),
    "a gap in an internal topic": lambda: check_disk(directory(data(0), coordinator=[decided(0), decided(2)])),
    "a gap that compaction left": lambda: check_disk(
        directory(batch("a"), batch("b", at=2)),
        kept=ChangingTopics(compacted=frozenset({"t"})),
        acknowledged=[sent(batch("c"), 1)],
        config_of=compacted,
    ),
    "another incarnation": lambda: check_disk(
        directory(batch("b"), topic_id=NEW),
        kept=ChangingTopics(recreated=frozenset({"t"})),
        acknowledged=[sent(batch("a"), 0)],
    ),
    "acknowledged and there": lambda: check_disk(
        directory(batch("a"), batch("b", at=1)), acknowledged=[sent(batch("a"), 0), sent(batch("b"), 1)]
    ),
    "deleted on request": lambda: check_disk(
        directory(batch("b", at=1), base=1), acknowledged=[sent(batch("a"), 0, deleted_before=1)]
    ),
}


@pytest.mark.parametrize("name", CLOSE)
def test_what_is_allowed_is_left_alone(name: str) -> None:
    assert CLOSE[name]() == {}


def opened_wrongly(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[LogDirectory], None], *batches: bytes) -> Found:
    """As if recovery had a fault."""

    class Faulty:
        @staticmethod
        def open(*arguments: object, **options: object) -> LogDirectory:
            opened = LogDirectory.open(*arguments, **options)  # type: ignore[arg-type]  # passed on as they are
            spoil(opened)
            return opened

    monkeypatch.setattr(recovery, "LogDirectory", Faulty)
    return check_disk(directory(*batches))


def forget_producers(opened: LogDirectory) -> None:
    opened.logs[PARTITION].producers.entries.clear()


def forget_aborted(opened: LogDirectory) -> None:
    opened.logs[PARTITION].segments.active.aborted.clear()


def shorten(opened: LogDirectory) -> None:
    opened.logs[PARTITION].log_end_offset = Offset(3)


def forget_epochs(opened: LogDirectory) -> None:
    opened.logs[PARTITION].leader_epochs.entries.clear()


@pytest.mark.parametrize("spoil", [forget_producers, forget_aborted, shorten, forget_epochs])
def test_a_recovery_that_differs_is_found(
    monkeypatch: pytest.MonkeyPatch, spoil: Callable[[LogDirectory], None]
) -> None:
    assert opened_wrongly(monkeypatch, spoil, *BOTH).keys() == {"D9 recovery differs from the log"}


def test_a_read_that_finds_another_batch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def misplace(_: LogDirectory) -> None:
        monkeypatch.setattr(recovery, "read_batches", lambda log, _, **options: read_batches(log, 0, **options))

    assert opened_wrongly(monkeypatch, misplace, *BOTH).keys() == {"D10 read finds another batch"}


def test_reading_changes_nothing() -> None:
    files = directory(*BOTH, b"rubble", coordinator=DECIDED)
    write_offsets(files, LOG_START_OFFSETS, {PARTITION: 0})
    before = {path: files.content(path) for path in (f"{PARTITION}/{segment_file(0, '.log')}", LOG_START_OFFSETS)}
    names = files.list(""), files.list(str(PARTITION))
    check_disk(files, torn=True)
    assert (files.list(""), files.list(str(PARTITION))) == names
    assert {path: files.content(path) for path in before} == before


def test_apache_kafkas_own_directory_breaks_no_rule() -> None:
    assert check_disk(DiskFiles(KAFKA), kept=ChangingTopics(compacted=frozenset({"compacted"}))) == {}
