"""Limits of decoders: what is refused before it costs anything, and what honest peers may still send."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncelog.base.errors import PeerError
from oncelog.base.units import MIB
from oncelog.wire.chunks import join_chunks
from oncelog.wire.message import REQUEST_MAX_ELEMENTS
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.create_topics import CreateTopicsRequest
from oncelog.wire.messages.fetch import FetchRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.metadata import MetadataRequest
from oncelog.wire.messages.offset_commit import OffsetCommitRequest
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest
from oncelog.wire.messages.produce import ProduceRequest
from tests.memory import peak_bytes


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


def refused_peak_bytes(decode: Callable[[], object]) -> int:
    def refused() -> None:
        with pytest.raises(PeerError, match="more elements"):
            decode()

    return peak_bytes(refused, 100_000)


def test_a_million_one_letter_topics_are_refused_for_next_to_nothing() -> None:
    request = (1_000_000).to_bytes(4, "big") + b"\0\1a" * 1_000_000 + b"\1"
    assert refused_peak_bytes(lambda: MetadataRequest.decode(request, 4)) < 100_000


def test_a_hundred_megabytes_of_empty_produce_topics_are_refused_for_next_to_nothing() -> None:
    """Each topic: empty name, no partitions, no tags."""
    request = b"\0" + b"\0\1" + b"\0\0\0\1" + varint(10_000_001) + bytes((1, 1, 0)) * 10_000_000 + b"\0"
    assert refused_peak_bytes(lambda: ProduceRequest.decode(request, 9)) < 100_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("decode", "start", "element"),
    [
        (lambda data: MetadataRequest.decode(data, 4), b"", b"\0\1a"),
        (lambda data: CreateTopicsRequest.decode(data, 2), b"", bytes(16)),
        (lambda data: OffsetCommitRequest.decode(data, 2), bytes(16), b"\0\1a\0\0\0\0"),
        (lambda data: OffsetFetchRequest.decode(data, 1), bytes(2), b"\0\1a\0\0\0\1\0\0\1\0"),
        (lambda data: FetchRequest.decode(data, 4), bytes(17), b"\0\1a\0\0\0\1" + bytes(16)),
    ],
)
def test_a_megabyte_of_the_smallest_elements_costs_no_more_than_32_mb(
    decode: Callable[[bytes], object], start: bytes, element: bytes
) -> None:
    count = min((MIB - 100) // len(element), REQUEST_MAX_ELEMENTS // 2)
    request = start + count.to_bytes(4, "big") + element * count + bytes(8)
    assert peak_bytes(lambda: decode(request), 32 * MIB) < 32 * MIB


def test_an_array_that_cannot_fit_is_refused_whatever_its_encoding() -> None:
    for count in (b"\x7f\xff\xff\xff", b"\0\0\0\2", b"\xff\xff\xff\xfe", b"\x80\0\0\0"):
        with pytest.raises(PeerError, match="array"):
            MetadataRequest.decode(count + b"\0\1a", 0)
    with pytest.raises(PeerError, match="array"):
        MetadataRequest.decode(varint(2**35 - 1) + bytes(40), 12)


@pytest.mark.slow
def test_elements_are_counted_over_all_arrays_of_a_message() -> None:
    """Groups of topics of nothing: no single array is too large."""
    topics = 8_000
    group = b"\2g" + varint(topics + 1) + bytes((1, 1, 0)) * topics + b"\0"
    honest = varint(4) + group * 3 + b"\1\0"
    assert len(OffsetFetchRequest.decode(honest, 8).groups) == 3
    hostile = varint(6) + group * 5 + b"\1\0"
    with pytest.raises(PeerError, match="more elements"):
        OffsetFetchRequest.decode(hostile, 8)


def test_up_to_64_unknown_tagged_fields_are_skipped() -> None:
    def request(count: int) -> bytes:
        return b"\2a\2b" + varint(count) + b"".join(varint(100 + tag) + b"\1x" for tag in range(count))

    assert ApiVersionsRequest.decode(request(64), 3).client_software_name == "a"
    with pytest.raises(PeerError, match="64 unknown"):
        ApiVersionsRequest.decode(request(65), 3)


def test_a_tagged_field_that_is_not_as_long_as_it_says_is_refused() -> None:
    plain = join_chunks(FetchRequest(cluster_id="c").encode(12))
    assert plain.endswith(b"\1\0\2\2c")
    assert FetchRequest.decode(plain, 12).cluster_id == "c"
    for tag in (b"\1\0\1\2c", b"\1\0\3\2c\0", b"\1\0\x7f\2c", b"\1\0"):
        with pytest.raises(PeerError):
            FetchRequest.decode(plain[:-5] + tag, 12)


@pytest.mark.parametrize(
    "string",
    [b"\xff\xfe", b"\x80\0", b"\0\2a", b"\xff\xff"],
    ids=["length -2", "length -32768", "cut", "null"],
)
def test_a_bad_string_is_refused(string: bytes) -> None:
    with pytest.raises(PeerError):
        FindCoordinatorRequest.decode(string, 0)


def test_what_is_not_utf8_is_replaced_as_java_does() -> None:
    assert FindCoordinatorRequest.decode(b"\0\5caf\xe9!", 0).key == "caf\ufffd!"
    with pytest.raises(PeerError, match="not UTF-8"):
        FindCoordinatorRequest.decode(b"\x7f\xff" + b"\xff" * 32_767, 0)


def test_a_string_beyond_the_protocols_length_is_refused_in_compact_form_too() -> None:
    longest = varint(32_768) + b"a" * 32_767
    assert len(ApiVersionsRequest.decode(longest + b"\1\0", 3).client_software_name) == 32_767
    with pytest.raises(PeerError, match="string of 32768 bytes"):
        ApiVersionsRequest.decode(varint(32_769) + b"a" * 32_768 + b"\1\0", 3)


def test_a_varint_of_more_than_five_bytes_is_refused() -> None:
    with pytest.raises(PeerError, match="varint"):
        ApiVersionsRequest.decode(b"\x80\x80\x80\x80\x80\0\1\0", 3)


def test_a_version_that_does_not_exist_is_refused() -> None:
    with pytest.raises(PeerError, match="version 6"):
        ApiVersionsRequest.decode(b"", 6)
    with pytest.raises(ValueError, match="version 6"):
        ApiVersionsRequest().encode(6)
