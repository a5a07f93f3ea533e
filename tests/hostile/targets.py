"""The targets of fuzzing: everything that reads bytes of a peer, or of a file that may be damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Final

from oncelog.base.errors import PeerError
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.invariant import invariant
from oncelog.base.units import KIB, MIB
from oncelog.handlers.registry import APIS
from oncelog.records.batch import HEADER_SIZE, compute_crc, iter_headers, read_header
from oncelog.records.builder import build_batch
from oncelog.records.compression import Codec
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal import consumer_protocol, group_records, transaction_records
from oncelog.records.record import Record, read_keys_and_values, read_records
from oncelog.sim.virtual.files import MemoryFiles
from oncelog.storage.checkpoints import read_leader_epochs, read_offsets, read_topic_id
from oncelog.storage.errors import CorruptFile, UnusableDirectory
from oncelog.storage.file_names import RECOVERY_POINTS
from oncelog.storage.index.offset_index import load_offset_index
from oncelog.storage.index.time_index import load_time_index
from oncelog.storage.index.transaction_index import load_transaction_index
from oncelog.storage.log.append import append_batch
from oncelog.storage.log_config import LogConfig
from oncelog.storage.log_directory import LogDirectory
from oncelog.storage.meta_properties import read_meta_properties
from oncelog.storage.producer_snapshots import decode_snapshot
from oncelog.wire.apis import BY_KEY
from oncelog.wire.chunks import join_chunks
from oncelog.wire.framing import FrameSplitter, request_limit
from oncelog.wire.header import decode_request_header
from tests.hostile import message_sets
from tests.hostile.engine import Target
from tests.hostile.largest import array_paths, request_of

DECOMPRESSED_MAX: Final = 256 * KIB
_PARTITION: Final = TopicPartition(TopicName("t"), 0)
_NOW_MS: Final = 1_700_000_000_000


@cache
def _requests() -> list[bytes]:
    """Small requests of every API in every version, without the size in front."""
    results = []
    for api in APIS:
        cls = getattr(import_module(f"oncelog.wire.messages.{api.module}"), f"{api.name}Request")
        for version in range(cls.MIN_VERSION, api.max_version + 1):
            for path in array_paths(cls) or [()]:
                frame = request_of(cls, path, 2, version, bytes(range(16)))
                if frame is not None:
                    results.append(frame[4:])
    return results


def _frames(data: bytes) -> None:
    """However the bytes are cut, the same frames come out, and no more is held than has come."""
    limit = request_limit(64 * KIB, 4 * KIB)
    whole, pieces = FrameSplitter(limit), FrameSplitter(limit)
    size = 1 + (data[0] if data else 0) % 23
    outcomes = []
    for splitter, step in ((whole, len(data) or 1), (pieces, size)):
        frames: list[bytes] = []
        try:
            for start in range(0, len(data), step):
                frames += map(bytes, splitter.feed(data[start : start + step]))
                invariant(splitter.held_bytes <= len(data), "holds more than came")
        except PeerError:
            pass
        outcomes.append((frames, splitter.refusal is None))
    invariant(outcomes[0] == outcomes[1], "frames depend on how the bytes came")


def _request(data: bytes) -> None:
    header, position = decode_request_header(data)
    api = BY_KEY[header.api_key]
    cls = getattr(import_module(f"oncelog.wire.messages.{api.module}"), f"{api.name}Request")
    request = cls.decode(memoryview(bytearray(data))[position:], header.api_version)
    again = join_chunks(request.encode(header.api_version))
    invariant(cls.decode(again, header.api_version) == request, "decodes to something else when encoded again")


def _batches() -> list[bytes]:
    records = [
        Record(0, _NOW_MS, b"k" * 20, b"v" * 200, (("h", b"x"), ("n", None))),
        Record(1, _NOW_MS, None, None, ()),
    ]
    plain = [bytes(build_batch(records, codec=codec)) for codec in Codec]
    bomb = [bytes(build_batch([Record(0, 1, None, bytes(4 * MIB), ())], codec=codec)) for codec in list(Codec)[1:]]
    return [*plain, plain[0] + plain[1], *(batch for batch in bomb if len(batch) < 16 * KIB)]


def _batch(data: bytes) -> None:
    for position, header in iter_headers(data):
        for _ in read_records(data, position, header, DECOMPRESSED_MAX):
            pass
        read_keys_and_values(data, position, header, DECOMPRESSED_MAX)


def _sound(data: bytearray) -> bytes:
    """Checksums made right, so that what is behind them is reached."""
    position = 0
    while position + HEADER_SIZE <= len(data):
        try:
            header = read_header(data, position)
        except CorruptBatch:
            break
        if position + header.size_bytes > len(data):
            break
        data[position + 17 : position + 21] = compute_crc(data, position, header).to_bytes(4, "big")
        position += header.size_bytes
    return bytes(data)


_LOG_FILES: Final = (
    "00000000000000000000.log",
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000000.txnindex",
    "00000000000000000008.snapshot",
    "leader-epoch-checkpoint",
    "partition.metadata",
)


def _append(log: object, *, producer: int = -1, codec: Codec = Codec.NONE) -> None:
    records = [Record(index, _NOW_MS, b"k", b"v" * 50, ()) for index in range(2)]
    batch = memoryview(bytearray(build_batch(records, codec=codec)))
    append_batch(log, batch, now_ms=_NOW_MS, leader_epoch=0)  # type: ignore[attr-defined]  # a PartitionLog


@cache
def _image() -> dict[str, bytes]:
    """A partition directory after a few appends and a clean end."""
    files = MemoryFiles(now_ms=lambda: _NOW_MS)
    directory = LogDirectory.open(files, config_of=lambda _: LogConfig(), now_ms=_NOW_MS)
    log = directory.create(_PARTITION, bytes(range(16)), LogConfig(), now_ms=_NOW_MS)  # type: ignore[arg-type]  # an id
    for codec in (Codec.NONE, Codec.ZSTD, Codec.GZIP, Codec.NONE):
        _append(log, codec=codec)
    directory.close(1)
    return {name: _content(files, f"t-0/{name}") for name in files.list("t-0")}


def _content(files: MemoryFiles, path: str) -> bytes:
    file = files.open(path)
    return file.read(0, file.size())


def _write(files: MemoryFiles, path: str, data: bytes) -> None:
    file = files.open(path, create=True)
    file.truncate(0)
    file.append((data,))
    file.close()


def _log_seeds() -> list[bytes]:
    image = _image()
    return [
        bytes((which, clean)) + image.get(name, b"") for which, name in enumerate(_LOG_FILES) for clean in (0, 1, 2)
    ]


def _recovery(data: bytes) -> None:
    """A directory with one damaged file opens, can be read and appended to, and opens again as it was left."""
    if len(data) < 2:
        return
    damaged, how = _LOG_FILES[data[0] % len(_LOG_FILES)], data[1]
    content = _sound(bytearray(data[2:])) if how & 2 else data[2:]
    files = MemoryFiles(now_ms=lambda: _NOW_MS)
    files.make_directory("t-0")
    for name, good in {**_image(), damaged: content}.items():
        _write(files, f"t-0/{name}", good)
    if how & 1:
        _write(files, ".kafka_cleanshutdown", b'{"version":0,"brokerEpoch":1}')
    directory = LogDirectory.open(files, config_of=lambda _: LogConfig(), now_ms=_NOW_MS)
    log = directory.logs[_PARTITION]
    _append(log)
    start, end = log.log_start_offset, log.log_end_offset
    invariant(start <= end, "a log that ends before it begins")
    directory.close(1)
    again = LogDirectory.open(files, config_of=lambda _: LogConfig(), now_ms=_NOW_MS).logs[_PARTITION]
    invariant((again.log_start_offset, again.log_end_offset) == (start, end), "not as it was left")


def _indexes(data: bytes) -> None:
    for load in (
        lambda: load_offset_index(data, 0, 1 << 20),
        lambda: load_time_index(data, 0),
        lambda: load_transaction_index(data, 0),
    ):
        try:
            load()
        except CorruptFile:
            continue


def _snapshot(data: bytes) -> None:
    for item in (data, _with_snapshot_crc(data)):
        try:
            decode_snapshot(item)
        except CorruptFile:
            continue


def _with_snapshot_crc(data: bytes) -> bytes:
    from oncelog.records.batch import crc32c

    return data[:2] + crc32c(data[6:]).to_bytes(4, "big") + data[6:]


def _small_files(data: bytes) -> None:
    files = MemoryFiles(now_ms=lambda: _NOW_MS)
    files.make_directory("t-0")
    for path in (RECOVERY_POINTS, "meta.properties", "t-0/leader-epoch-checkpoint", "t-0/partition.metadata"):
        _write(files, path, data)
    for offset in read_offsets(files, RECOVERY_POINTS).values():
        invariant(0 <= offset < 1 << 63, "no offset")
    for epoch, start in read_leader_epochs(files, "t-0"):
        invariant(0 <= epoch < 1 << 31 and 0 <= start < 1 << 63, "no epoch")
    read_topic_id(files, "t-0")
    read_meta_properties(files)


_SMALL_FILES: Final = (
    b"0\n2\nt 0 5\nt 1 7\n",
    b"0\n2\n0 0\n3 17\n",
    b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n",
    b"#\ncluster.id=abc\ndirectory.id=def\nnode.id=1\noncelog.version=1\nversion=1\n",
)


def _first_byte(readers: Sequence[Callable[[bytes], object]]) -> Callable[[bytes], None]:
    """The first byte chooses who reads the rest."""

    def run(data: bytes) -> None:
        if data:
            readers[data[0] % len(readers)](data[1:])

    return run


_COORDINATOR_READERS: Final = (
    group_records.decode_key,
    group_records.decode_any_key,
    group_records.decode_offset_commit_value,
    group_records.decode_any_offset_commit_value,
    group_records.decode_group_metadata_value,
    transaction_records.decode_key,
    transaction_records.decode_any_key,
    transaction_records.decode_value,
    transaction_records.decode_any_value,
    consumer_protocol.decode_subscription,
    consumer_protocol.decode_assignment,
)


def _coordinator_seeds() -> Iterable[bytes]:
    subscription = consumer_protocol.Subscription(topics=("t", "u"))
    value = group_records.OffsetCommitValue(offset=5, leader_epoch=1, metadata="m", commit_timestamp=_NOW_MS)
    return [
        b"\0" + group_records.encode_offset_commit_key("g", "t", 0),
        b"\1" + group_records.encode_group_metadata_key("g"),
        *(bytes((which,)) + group_records.encode_offset_commit_value(value) for which in (2, 3)),
        b"\4"
        + group_records.encode_group_metadata_value(
            group_records.GroupMetadataValue(protocol_type="consumer", generation=1)
        ),
        b"\5" + transaction_records.encode_key("x"),
        *(bytes((which,)) + bytes(30) for which in (7, 8)),
        b"\x09" + consumer_protocol.encode_subscription(subscription),
        b"\x0a" + consumer_protocol.encode_assignment(consumer_protocol.Assignment(partitions=(_PARTITION,))),
    ]


TARGETS: Final = {
    target.name: target
    for target in (
        Target("frames", lambda: [b"".join(len(f).to_bytes(4, "big") + f for f in _requests()[:8])], _frames),
        Target("requests", _requests, _request, (PeerError,)),
        Target("batches", _batches, _batch, (CorruptBatch,), lambda size: 8 * DECOMPRESSED_MAX + 600 * size),
        Target(
            "message-sets",
            message_sets.seeds,
            message_sets.read,
            (CorruptBatch,),
            lambda size: 16 * message_sets.DECOMPRESSED_MAX + 600 * size,
        ),
        Target("recovery", _log_seeds, _recovery, (), lambda size: 64 * MIB),
        Target("indexes", lambda: [_image()[name] for name in _LOG_FILES[1:3]] + [bytes(34)], _indexes),
        Target("snapshots", lambda: [_image()[name] for name in _image() if name.endswith(".snapshot")], _snapshot),
        Target("small-files", lambda: _SMALL_FILES, _small_files, (UnusableDirectory,)),
        Target("coordinators", lambda: list(_coordinator_seeds()), _first_byte(_COORDINATOR_READERS), (CorruptBatch,)),
    )
}
