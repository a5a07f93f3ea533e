"""Message sets as clients of 0.8 to 0.10 send them, sound and otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncelog.legacy.message_set.conversion import wrap
from oncelog.legacy.message_set.entry import Message, TimestampType, append_entry
from oncelog.records.compression import Codec, compress
from tests.message_sets import write

MADE_MS: Final = 1_600_000_000_000
FAR_MS: Final = 9_000_000_000_000
BY_BROKER: Final = 0x08
KEYED: Final = ((b"k0", b"value 0"), (b"k1", None), (b"k2", b""))
MIXED: Final = ((b"k", b"value"), (None, b"no key"))


def messages(
    magic: int, pairs: Sequence[tuple[bytes | None, bytes | None]] = KEYED, *, time: int = MADE_MS, first: int = 0
) -> list[Message]:
    """Messages with the offsets that producers give: from 0 on."""
    kind = TimestampType.CREATE_TIME if magic else TimestampType.NONE
    return [
        Message(first + index, time + index if magic else -1, kind, key, value, magic)
        for index, (key, value) in enumerate(pairs)
    ]


def damaged(data: bytes, at: int = -1) -> bytes:
    """With one bit flipped."""
    broken = bytearray(data)
    broken[at] ^= 1
    return bytes(broken)


def single(magic: int, attributes: int, value: bytes | None, timestamp: int = MADE_MS) -> bytes:
    """One entry of any attributes."""
    output = bytearray()
    append_entry(output, 0, magic, attributes, timestamp, None, value)
    return bytes(output)


def unsound_sets() -> dict[str, bytes]:
    """Sets that a broker refuses, or takes although one might not think so, by name."""
    plain = {magic: write(messages(magic), magic) for magic in (0, 1)}
    gzip = {magic: write(messages(magic), magic, Codec.GZIP) for magic in (0, 1)}
    result = {
        "nothing": b"",
        "less than an entry": plain[1][:7],
        "a message cut": plain[1][:-3],
        "a message and one cut": plain[1] + plain[1][:30],
        "a size too small": (0).to_bytes(8, "big") + (5).to_bytes(4, "big") + bytes(20),
        "formats mixed": plain[0] + plain[1],
        "two wrappers": gzip[1] * 2,
        "a wrapper after a message": plain[1] + gzip[1],
        "timestamps of the far future": write(messages(1, time=FAR_MS), 1),
        "offsets that do not begin at 0": write(messages(1, first=1000), 1, Codec.GZIP),
        "offsets that are all 0": wrap(
            b"".join(write([message], 1) for message in messages(1, [(b"a", b"1")]) * 3), 0, 1, Codec.GZIP
        ),
        "wrapper before its messages": wrap(plain[1], 1, 1, Codec.GZIP),
        "timestamps set by a broker": wrap(plain[1], 2, 1, Codec.GZIP, MADE_MS, BY_BROKER),
        "format 1 in a wrapper of format 0": wrap(plain[1], 2, 0, Codec.GZIP),
        "an unknown format": damaged(plain[1], 16)[:16] + b"\x05" + plain[1][17:],
    }
    for magic in (0, 1):
        result |= {
            f"a wrong checksum, format {magic}": damaged(plain[magic]),
            f"a wrong checksum inside, format {magic}": wrap(damaged(plain[magic]), 2, magic, Codec.GZIP, MADE_MS),
            f"a wrapper of null, format {magic}": single(magic, Codec.GZIP, None),
            f"a wrapper of nothing, format {magic}": single(magic, Codec.GZIP, compress(Codec.GZIP, b"")),
            f"a wrapper in a wrapper, format {magic}": wrap(gzip[magic], 2, magic, Codec.GZIP, MADE_MS),
            f"zstd, format {magic}": single(magic, Codec.ZSTD, compress(Codec.ZSTD, plain[magic])),
            f"no gzip, format {magic}": single(magic, Codec.GZIP, b"this is not gzip"),
            f"no snappy, format {magic}": single(magic, Codec.SNAPPY, b"this is not snappy"),
            f"no LZ4, format {magic}": single(magic, Codec.LZ4, b"this is not LZ4"),
        }
    return result
