"""Records and batches in which every field can be set, and frames of the codecs by hand.

Nothing here checks anything: the point is to write what no producer should.
"""

from __future__ import annotations

import gzip
import struct
from typing import Any, Final

import cramjam

from oncelog.records.builder import seal
from oncelog.records.compression import Codec, compress

T: Final = 1_700_000_000_000
"""The base timestamp: far enough back for any clock of a broker, and not before its records may be."""
HEADER: Final = struct.Struct(">qiibIhiqqqhii")
SKIPPABLE: Final = struct.pack("<II", 0x184D2A50, 4) + b"skip"
"""A frame that readers of lz4 and zstd frames pass over."""


def varint(value: int, width: int = 0) -> bytes:
    """A zigzag varint, made ``width`` bytes long by needless continuation bytes."""
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    output = bytearray()
    while raw > 0x7F:
        output.append(raw & 0x7F | 0x80)
        raw >>= 7
    output.append(raw)
    while len(output) < width:
        output[-1] |= 0x80
        output.append(0)
    return bytes(output)


def field(value: bytes | None, length: bytes | None = None) -> bytes:
    """A key or value behind its length, which is the right one unless given."""
    if length is None:
        length = varint(-1 if value is None else len(value))
    return length + (value or b"")


def record(
    offset_delta: int | bytes = 0,
    timestamp_delta: int | bytes = 0,
    *,
    key: bytes = field(b"key"),
    value: bytes = field(b"value"),
    headers: bytes = b"\0",
    attributes: int = 0,
    longer: int = 0,
    length: bytes | None = None,
) -> bytes:
    """A record of parts that are encoded already; its length is ``longer`` than it is, or ``length``."""
    offset = varint(offset_delta) if isinstance(offset_delta, int) else offset_delta
    timestamp = varint(timestamp_delta) if isinstance(timestamp_delta, int) else timestamp_delta
    body = bytes([attributes]) + timestamp + offset + key + value + headers
    return (varint(len(body) + longer) if length is None else length) + body


def batch(payload: bytes, count: int = 2, **fields: Any) -> bytes:
    """A batch around ``payload`` with the right checksum; ``fields`` replace those of its header."""
    header = {
        "base_offset": 0,
        "batch_length": HEADER.size - 12 + len(payload),
        "leader_epoch": -1,
        "magic": 2,
        "crc": 0,
        "attributes": 0,
        "last_offset_delta": count - 1,
        "base_timestamp": T,
        "max_timestamp": T + 5,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "count": count,
    }
    data = bytearray(HEADER.pack(*(header | fields).values()) + payload)
    if "crc" not in fields:
        seal(data)
    return bytes(data)


def compressed(codec: Codec, body: bytes, count: int = 2, **fields: Any) -> bytes:
    """A batch of records that are compressed; attributes are the codec's unless given."""
    return batch(compress(codec, body), count, **({"attributes": int(codec)} | fields))


# Frames


def gzip_member(data: bytes, name: str = "") -> bytes:
    """One member, with a file name where there is one."""
    member = gzip.compress(data, mtime=0)
    if not name:
        return member
    return member[:3] + b"\x08" + member[4:10] + name.encode() + b"\0" + member[10:]


def snappy_stream(*blocks: bytes, version: int = 1, compatible: int = 1) -> bytes:
    """Blocks behind snappy-java's header."""
    parts = [b"\x82SNAPPY\0", struct.pack(">ii", version, compatible)]
    for block in blocks:
        packed = bytes(cramjam.snappy.compress_raw(block))
        parts += (struct.pack(">i", len(packed)), packed)
    return b"".join(parts)


def lz4_frame(data: bytes, **options: Any) -> bytes:
    """A frame as cramjam writes it; content checksums and linked blocks are off unless ``options`` say so."""
    compressor = cramjam.lz4.Compressor(**({"content_checksum": False, "block_linked": False} | options))
    compressor.compress(data)
    return bytes(compressor.finish())


def zstd_frame(
    *blocks: bytes,
    content_size: int | None = None,
    dictionary: int | None = None,
    window: int = 0x38,
    last: bool = True,
) -> bytes:
    """A frame of raw blocks; ``window``: the descriptor's byte, 128 KiB unless given."""
    descriptor = 0 if content_size is None else 0x80
    descriptor |= 0 if dictionary is None else 0x03
    parts = [b"\x28\xb5\x2f\xfd", bytes([descriptor, window])]
    if dictionary is not None:
        parts.append(struct.pack("<I", dictionary))
    if content_size is not None:
        parts.append(struct.pack("<I", content_size))
    for number, block in enumerate(blocks, 1):
        is_last = last and number == len(blocks)
        parts += ((len(block) << 3 | is_last).to_bytes(3, "little"), block)
    return b"".join(parts)
