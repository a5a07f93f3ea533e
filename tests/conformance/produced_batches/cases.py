"""The batches: what may be wrong with a header, with records, and with what a codec made of them.

A case is a name and the bytes of Produce's records. All are the same in every run: Apache Kafka's answers are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oncelog.records.compression import Codec, compress
from tests.conformance.produced_batches.bodies import (
    SKIPPABLE,
    T,
    batch,
    compressed,
    field,
    gzip_member,
    lz4_frame,
    record,
    snappy_stream,
    varint,
    zstd_frame,
)

Cases = dict[str, bytes]
INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1
GOOD: Final = record(0, 0) + record(1, 5)
FIRST: Final = record(0, 0)
CODECS: Final = tuple(Codec)
FAR_FUTURE: Final = 4_000_000_000_000
"""Beyond ``message.timestamp.after.max.ms`` for any clock."""


def header_cases(codec: Codec) -> Cases:
    """Sound records behind headers that say something else, or something odd."""

    def made(count: int = 2, **fields: int) -> bytes:
        attributes = fields.pop("attributes", 0) | codec
        return compressed(codec, GOOD, count, attributes=attributes, **fields)

    whole = made()
    cases = {
        "good": whole,
        "base offset 1": made(base_offset=1),
        "base offset -1": made(base_offset=-1),
        "leader epoch 7": made(leader_epoch=7),
        "leader epoch -2": made(leader_epoch=-2),
        "magic 0": made(magic=0),
        "magic 1": made(magic=1),
        "magic 3": made(magic=3),
        "magic -1": made(magic=-1),
        "wrong checksum": made(crc=1),
        "no records at all": b"",
        "five bytes": whole[:5],
        "half a header": whole[:30],
        "a header and no more": whole[:61],
        "cut by a byte": whole[:-1],
        "a byte more": whole + b"\0",
        "half a batch more": whole + whole[:40],
        "garbage of 100 bytes more": whole + b"\x07" * 100,
        "two batches": whole + whole,
        "length 48": made(batch_length=48),
        "length 13": made(batch_length=13),
        "length 0": made(batch_length=0),
        "length -1": made(batch_length=-1),
        "length of 2 GiB": made(batch_length=INT32_MAX),
        "length of the header alone": made(batch_length=49),
    }
    for bits in (0x08, 0x10, 0x40, 0x80, 0x48, 0xC8, 0x0100, 0x7F00, -0x8000, 0x0188):
        cases[f"attributes {bits:#06x}"] = made(attributes=bits)
    for bits in (0x20, 0x30):
        cases[f"attributes {bits:#06x}, control"] = made(attributes=bits)
    for number in (5, 6, 7):
        cases[f"codec {number}"] = batch(compress(codec, GOOD), attributes=number)
    ranges = [(0, 2), (2, 2), (-1, 2), (INT32_MAX, 2), (-1, 0), (0, 0), (1, 0), (0, -1), (-2, -1), (1, -1)]
    ranges += [(0, 1), (2, 3), (9, 10), (INT32_MAX - 1, INT32_MAX), (999_999, 1_000_000)]
    for last, count in ranges:
        cases[f"last offset {last}, count {count}"] = made(count, last_offset_delta=last)
    times = [(T, T), (T, T + 4), (T, T + 6), (T, T - 1), (T, 0), (T, -1), (T, -2), (T, INT64_MAX), (T, -INT64_MAX)]
    times += [(T, FAR_FUTURE), (FAR_FUTURE, FAR_FUTURE + 5), (FAR_FUTURE, T), (-1, -1), (-1, 4), (-6, -1), (-6, T)]
    times += [(-100, -95), (0, 5), (-1, T), (INT64_MAX, INT64_MAX), (-INT64_MAX - 1, -INT64_MAX)]
    for base, latest in times:
        cases[f"timestamps {base} to {latest}"] = made(base_timestamp=base, max_timestamp=latest)
    for latest in (T, 0, -1, FAR_FUTURE):
        name = f"append time of the producer {latest}"
        cases[name] = made(attributes=0x08, max_timestamp=latest)
    return cases | _producer_cases(codec)


def _producer_cases(codec: Codec) -> Cases:
    cases: Cases = {}
    identities = [(5000, 0, 0), (5001, 0, -1), (5002, 0, 5), (5003, -1, 0), (5004, 3, 0), (-1, 0, 0), (-1, -1, 0)]
    identities += [(-2, 0, 0), (-1, 5, -1), (5005, 0, INT32_MAX), (5006, 0, -2), (5007, -5, 0), (5008, 32767, 0)]
    for producer, epoch, sequence in identities:
        made = compressed(
            codec,
            GOOD,
            producer_id=producer + (1000 * codec if producer >= 0 else 0),
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        cases[f"producer {producer}, epoch {epoch}, sequence {sequence}"] = made
    return cases


def record_bodies() -> Cases:
    """Two records as their bytes, wrong in every field: to be put into a batch that says that it has two."""
    second = record(1, 5)
    bodies = {
        "good": GOOD,
        "no bytes": b"",
        "one record": FIRST,
        "three records": GOOD + record(2, 5),
        "a zero byte more": GOOD + b"\0",
        "three zero bytes more": GOOD + bytes(3),
        "fifty bytes more": GOOD + b"\x07" * 50,
        "cut by a byte": GOOD[:-1],
        "cut in the second value": GOOD[:-4],
        "cut after the second length": FIRST + second[:1],
        "zeros alone": bytes(40),
        "bytes 0xff alone": b"\xff" * 40,
        "attributes 1": FIRST + record(1, 5, attributes=1),
        "attributes 0x08": FIRST + record(1, 5, attributes=0x08),
        "attributes 0xff": FIRST + record(1, 5, attributes=0xFF),
    }
    for place, made in _in_both_places():
        bodies |= {f"{name}, {place} record": body for name, body in made}
    return bodies


def _in_both_places() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    variants = _record_variants()
    yield "first", [(name, record(0, 0, **parts) + record(1, 5)) for name, parts in variants.items()]
    yield "second", [(name, FIRST + record(1, 5, **parts)) for name, parts in variants.items()]
    offsets = (0, 1, 2, -1, INT32_MAX)
    times: dict[str, int | bytes] = {
        "-1": -1,
        "2 weeks": 1_209_600_000,
        "60 years": 1_900_000_000_000,
        "-T": -T,
        "-T-1": -T - 1,
        "2^63-1": INT64_MAX,
        "-2^63": -INT64_MAX - 1,
        "in 5 bytes": varint(5, 5),
        "in 10 bytes": varint(5, 10),
        "in 11 bytes": varint(5, 11),
    }
    for place, right in (("first", 0), ("second", 1)):
        other = (lambda made: made + record(1, 5)) if place == "first" else (lambda made: FIRST + made)
        deltas = [(f"offset delta {delta}", other(record(delta, 0))) for delta in offsets if delta != right]
        deltas += [(f"offset delta in {size} bytes", other(record(varint(right, size), 0))) for size in (2, 5, 6)]
        deltas += [(f"timestamp delta {name}", other(record(right, delta))) for name, delta in times.items()]
        yield place, deltas


def _record_variants() -> dict[str, dict[str, bytes | int]]:
    variants: dict[str, dict[str, bytes | int]] = {
        "length 1 more": {"longer": 1},
        "length 1 less": {"longer": -1},
        "length 10 more": {"longer": 10},
        "length 2 less": {"longer": -2},
        "length 0": {"length": varint(0)},
        "length -1": {"length": varint(-1)},
        "length -14": {"length": varint(-14)},
        "length of 2 GiB": {"length": varint(INT32_MAX)},
        "length -2 GiB": {"length": varint(-INT32_MAX - 1)},
        "length in 2 bytes": {"length": varint(14, 2)},
        "length in 5 bytes": {"length": varint(14, 5)},
        "length in 6 bytes": {"length": varint(14, 6)},
        "key null": {"key": field(None)},
        "key empty": {"key": field(b"")},
        "key of length -2": {"key": varint(-2)},
        "key of length -2 GiB": {"key": varint(-INT32_MAX - 1)},
        "key 1 longer": {"key": field(b"key", varint(4))},
        "key to the end of the record": {"key": field(b"key", varint(10))},
        "key beyond the record": {"key": field(b"key", varint(20))},
        "key of 2 GiB": {"key": field(b"key", varint(INT32_MAX))},
        "key length in 2 bytes": {"key": field(b"key", varint(3, 2))},
        "key length in 5 bytes": {"key": field(b"key", varint(3, 5))},
        "key length in 6 bytes": {"key": field(b"key", varint(3, 6))},
        "value null": {"value": field(None)},
        "value empty": {"value": field(b"")},
        "value of length -2": {"value": varint(-2)},
        "value 1 longer": {"value": field(b"value", varint(6))},
        "value 1 shorter": {"value": field(b"value", varint(4))},
        "value beyond the record": {"value": field(b"value", varint(10))},
        "value of 2 GiB": {"value": field(b"value", varint(INT32_MAX))},
        "value length in 5 bytes": {"value": field(b"value", varint(5, 5))},
    }
    return variants | {name: {"headers": headers} for name, headers in _header_variants().items()}


def _header_variants() -> Cases:
    header = varint(1)
    return {
        "a byte after the headers": b"\0\0",
        "three bytes after the headers": b"\0abc",
        "no header count": b"",
        "header count in 2 bytes": varint(0, 2),
        "header count in 5 bytes": varint(0, 5),
        "header count in 6 bytes": varint(0, 6),
        "one header": header + field(b"h") + field(b"x"),
        "two headers": varint(2) + (field(b"h") + field(b"x")) * 2,
        "header named ff": header + field(b"\xff") + field(b"x"),
        "header named by half a character": header + field(b"a\xe2\x82") + field(b"x"),
        "header named by nothing": header + field(b"") + field(b"x"),
        "header of null": header + field(b"h") + field(None),
        "header of nothing": header + field(b"h") + field(b""),
        "header of length -2": header + field(b"h") + varint(-2),
        "header without a name": header + field(None) + field(b"x"),
        "header name of length -2": header + varint(-2) + field(b"x"),
        "header name beyond": header + field(b"h", varint(50)) + field(b"x"),
        "header value 1 longer": header + field(b"h") + field(b"x", varint(2)),
        "header value beyond": header + field(b"h") + field(b"x", varint(50)),
        "one header and no bytes": header,
        "two headers and one there": varint(2) + field(b"h") + field(b"x"),
        "headers -1": varint(-1),
        "headers -2": varint(-2),
        "headers 2147483647": varint(INT32_MAX),
        "headers 2147483647 and one there": varint(INT32_MAX) + field(b"h") + field(b"x"),
        "one header more than counted": header + (field(b"h") + field(b"x")) * 2,
        "header name length in 5 bytes": header + field(b"h", varint(1, 5)) + field(b"x"),
    }


def long_bodies() -> dict[str, tuple[int, bytes]]:
    """Bodies of many records: with how many the batch says that it has."""
    same = [record(n, 3, key=field(None), value=field(b"v" * 20)) for n in range(300)]
    varied = [record(n, n, key=field(b"k" * (n % 70)), value=field(b"v" * (n % 90))) for n in range(300)]
    bodies = {"same": (300, b"".join(same)), "varied": (300, b"".join(varied))}
    for name, records in (("same", same), ("varied", varied)):
        for at in (1, 63, 64, 150, 299):
            before, after = b"".join(records[:at]), b"".join(records[at + 1 :])
            bodies[f"{name}, {at} missing"] = 300, before + after
            bodies[f"{name}, {at} twice"] = 300, before + records[at] * 2 + after
            wrong = bytearray(records[at])
            wrong[-1] = 1
            bodies[f"{name}, {at} claims a header"] = 300, before + wrong + after
            headers = varint(1) + field(b"\xff") + field(b"x")
            other = record(at, 3, key=field(None), value=field(b"v" * 20), headers=headers)
            bodies[f"{name}, {at} with a header"] = 300, before + other + after
            late = record(at, 100_000, key=field(None), value=field(b"v" * 20))
            bodies[f"{name}, {at} latest"] = 300, before + late + after
    return bodies


def limited_cases(codec: Codec) -> Cases:
    """Records around ``max.decompressed.message.bytes=14``, which is the size of each record of ``GOOD``."""
    larger, longer = field(b"value!"), field(b"v" * 100)
    broken = field(b"key", varint(20))
    bodies = {
        "good": (2, GOOD),
        "first 1 larger": (2, record(0, 0, value=larger) + record(1, 5)),
        "second 1 larger": (2, FIRST + record(1, 5, value=larger)),
        "second 95 larger": (2, FIRST + record(1, 5, value=longer)),
        "first a header larger": (2, record(0, 0, headers=varint(1) + field(b"h") + field(b"x")) + record(1, 5)),
        "large after broken": (2, record(0, 0, key=broken) + record(1, 5, value=larger)),
        "broken after large": (2, record(0, 0, value=larger) + record(1, 5, key=broken)),
        "large after the last": (2, GOOD + record(2, 5, value=larger)),
        "one of three missing, second larger": (3, FIRST + record(1, 5, value=larger)),
        "keyless, second larger": (2, record(0, 0, key=field(None)) + record(1, 5, value=larger)),
        "late, second larger": (2, record(0, FAR_FUTURE) + record(1, 5, value=larger)),
    }
    return {name: compressed(codec, body, count) for name, (count, body) in bodies.items()}


def payload_cases(codec: Codec) -> Cases:
    """Frames of a codec that were changed afterwards, or that another codec made."""
    good = compress(codec, GOOD)
    half = len(FIRST)
    payloads = {
        "garbage": b"\x07\x5c\xf1" * 16,
        "no bytes": b"",
        "of nothing": compress(codec, b""),
        "cut in half": good[: len(good) // 2],
        "cut by a byte": good[:-1],
        "a zero byte more": good + b"\0",
        "ten bytes more": good + b"\x07" * 10,
        "two frames": compress(codec, GOOD[:half]) + compress(codec, GOOD[half:]),
        "a frame of nothing more": good + compress(codec, b""),
        "a skippable frame more": good + SKIPPABLE,
        "a skippable frame before": SKIPPABLE + good,
        "not compressed": GOOD,
    }
    for other in CODECS[1:]:
        if other is not codec:
            payloads[f"of {other.name.lower()}"] = compress(other, GOOD)
    payloads |= _FRAMES[codec]()
    return {name: batch(payload, attributes=int(codec)) for name, payload in payloads.items()}


def _gzip_frames() -> Cases:
    good = gzip_member(GOOD)
    wrong_checksum = bytearray(good)
    wrong_checksum[-5] ^= 1
    wrong_size = bytearray(good)
    wrong_size[-1] ^= 1
    return {
        "member with a name": gzip_member(GOOD, "name"),
        "wrong checksum": bytes(wrong_checksum),
        "wrong size": bytes(wrong_size),
        "no trailer": good[:-8],
        "half a trailer": good[:-4],
        "half a member more": good + good[:15],
        "method 7": good[:2] + b"\x07" + good[3:],
        "reserved flags": good[:3] + b"\xe0" + good[4:],
    }


def _snappy_frames() -> Cases:
    raw = compress(Codec.SNAPPY, GOOD)[20:]
    half = len(FIRST)
    return {
        "raw": raw,
        "raw, cut": raw[:-1],
        "raw, a byte more": raw + b"\0",
        "raw, twice": raw + raw,
        "raw, wrong size": bytes([raw[0] + 1]) + raw[1:],
        "raw, of 4 GiB": b"\xff\xff\xff\xff\x0f" + raw[1:],
        "two blocks": snappy_stream(GOOD[:half], GOOD[half:]),
        "blocks that cut a record": snappy_stream(GOOD[:5], GOOD[5:]),
        "a block of nothing": snappy_stream(GOOD[:half], b"", GOOD[half:]),
        "version 2": snappy_stream(GOOD, version=2),
        "compatible with 2": snappy_stream(GOOD, version=2, compatible=2),
        "compatible with 0": snappy_stream(GOOD, version=0, compatible=0),
        "header alone": snappy_stream(),
        "half a header": snappy_stream()[:10],
        "a second header": snappy_stream(GOOD[:half]) + snappy_stream(GOOD[half:]),
        "block of length 0": snappy_stream() + bytes(4) + snappy_stream(GOOD)[16:],
        "block of length 0 more": snappy_stream(GOOD) + bytes(4),
        "block of length -1": snappy_stream() + b"\xff" * 4 + snappy_stream(GOOD)[20:],
        "half a length more": snappy_stream(GOOD) + b"\0\0",
    }


def _lz4_frames() -> Cases:
    good = lz4_frame(GOOD)
    wrong_descriptor = bytearray(good)
    wrong_descriptor[6] ^= 1
    checked = bytearray(lz4_frame(GOOD, content_checksum=True))
    large = record(0, 0, value=field(bytes(200_000))) + record(1, 5)
    wrong = bytearray(checked)
    wrong[-1] ^= 1
    return {
        "linked blocks": lz4_frame(GOOD, block_linked=True),
        "content checksum": bytes(checked),
        "wrong content checksum": bytes(wrong),
        "wrong descriptor checksum": bytes(wrong_descriptor),
        "no end mark": good[:-4],
        "several blocks": lz4_frame(large),
        "several linked blocks": lz4_frame(large, block_linked=True),
        "version 2": good[:4] + bytes([good[4] & 0x3F | 0x80]) + good[5:],
        "old frame": b"\x02\x21\x4c\x18" + good[4:],
    }


def _zstd_frames() -> Cases:
    half = len(FIRST)
    return {
        "raw block": zstd_frame(GOOD),
        "two raw blocks": zstd_frame(GOOD[:half], GOOD[half:]),
        "no last block": zstd_frame(GOOD, last=False),
        "content size": zstd_frame(GOOD, content_size=len(GOOD)),
        "wrong content size": zstd_frame(GOOD, content_size=len(GOOD) + 1),
        "huge content size": zstd_frame(GOOD, content_size=0xF0000000),
        "dictionary 7": zstd_frame(GOOD, dictionary=7),
        "window of 2 GiB": zstd_frame(GOOD, window=0xA8),
        "window of 8 MiB": zstd_frame(GOOD, window=0x68),
        "window of 256 MiB": zstd_frame(GOOD, window=0x90),
        "two frames of raw blocks": zstd_frame(GOOD[:half]) + zstd_frame(GOOD[half:]),
    }


_FRAMES: Final = {
    Codec.GZIP: _gzip_frames,
    Codec.SNAPPY: _snappy_frames,
    Codec.LZ4: _lz4_frames,
    Codec.ZSTD: _zstd_frames,
}


def large_cases(codec: Codec) -> Cases:
    """Batches that are much larger than their bytes."""
    value = record(0, 0, value=field(bytes(3_000_000))) + record(1, 5)
    return {
        "a value of 3 MB": compressed(codec, value),
        "3 MB, and a byte more": compressed(codec, value + b"\0"),
        "3 MB, and one record less": compressed(codec, value, 3),
        "100,000 records": compressed(codec, b"".join(map(record, range(100_000))), 100_000, max_timestamp=T),
        "100,000 records, one less": compressed(codec, b"".join(map(record, range(99_999))), 100_000, max_timestamp=T),
    }
