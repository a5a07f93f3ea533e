"""Whatever a peer sends, decoding yields a message or raises PeerError, and nothing else."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.base.errors import PeerError
from oncelog.wire.apis import WIRE_APIS, WireApi
from oncelog.wire.chunks import join_chunks
from oncelog.wire.header import decode_request_header, decode_response_header
from oncelog.wire.message import Message
from tests.conformance.wire.kio_oracle import kio_bytes, kio_root, kio_versions, our_class, random_entity
from tests.conformance.wire.other_versions.samples import samples

DIRECTIONS = ("request", "response")
DAMAGES = (b"", b"\0", b"\x01", b"\x7f", b"\xff", b"\xff\xff\xff\xff", b"\x80\x80\x80\x80\x80\x01")

messages = st.sampled_from(
    [
        (api, version, direction)
        for api in WIRE_APIS
        for version in (api.min_version, api.max_version)
        for direction in DIRECTIONS
    ]
)


def valid(api: WireApi, version: int, direction: str, seed: int) -> tuple[type[Message], bytes]:
    """A class and the bytes of one of its messages."""
    if version not in kio_versions(api):
        name = f"{api.name}{direction.title()}"
        result = [sample for sample in samples() if (sample.name, sample.version) == (name, version)]
        one = result[seed % len(result)]
        return type(one.message), join_chunks(one.message.encode(version))
    kio_class = kio_root(api.module, version, direction)
    entity = random_entity(kio_class, random.Random(seed))
    return our_class(api.module, kio_class.__name__), kio_bytes(entity)


def decode_or_refuse(cls: type[Message], data: bytes, version: int) -> None:
    """Anything that was decoded can also be sent."""
    try:
        message = cls.decode(data, version)
    except PeerError:
        return
    message.encode(version)


@settings(max_examples=40)
@given(messages, st.binary(max_size=200))
def test_random_bytes(which: tuple[WireApi, int, str], data: bytes) -> None:
    api, version, direction = which
    decode_or_refuse(our_class(api.module, f"{api.name}{direction.title()}"), data, version)


def damage(which: tuple[WireApi, int, str], seed: int, data: st.DataObject) -> None:
    """Change, remove or add some bytes of a valid message."""
    cls, encoded = valid(*which, seed)
    damaged = bytearray(encoded)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(damaged)))
        damaged[start : start + data.draw(st.integers(0, 2))] = data.draw(st.sampled_from(DAMAGES))
    decode_or_refuse(cls, bytes(damaged), which[1])


@settings(max_examples=40)
@given(messages, st.integers(0, 50), st.data())
def test_a_damaged_message(which: tuple[WireApi, int, str], seed: int, data: st.DataObject) -> None:
    damage(which, seed, data)


@pytest.mark.slow
@pytest.mark.long
@settings(max_examples=2000)
@given(messages, st.integers(0, 10_000), st.data())
def test_many_damaged_messages(which: tuple[WireApi, int, str], seed: int, data: st.DataObject) -> None:
    damage(which, seed, data)


@settings(max_examples=20)
@given(messages, st.integers(0, 50))
def test_a_message_cut_anywhere_is_refused(which: tuple[WireApi, int, str], seed: int) -> None:
    cls, encoded = valid(*which, seed)
    ends = range(len(encoded)) if len(encoded) < 100 else random.Random(seed).sample(range(len(encoded)), 100)
    for end in ends:
        with pytest.raises(PeerError):
            cls.decode(encoded[:end], which[1])


@given(st.binary(max_size=40), st.integers(-1, 80), st.integers(-1, 20))
def test_random_headers(data: bytes, api_key: int, version: int) -> None:
    start = (api_key & 0xFFFF).to_bytes(2, "big") + (version & 0xFFFF).to_bytes(2, "big")
    for frame in (data, start + data):
        try:
            header, position = decode_request_header(frame)
        except PeerError:
            continue
        assert 10 <= position <= len(frame)
        assert header.api_key in {api.key for api in WIRE_APIS}
    try:
        correlation_id, position = decode_response_header(data, 3, version)
    except PeerError:
        return
    assert correlation_id == int.from_bytes(data[:4], "big", signed=True)
    assert position <= len(data)
