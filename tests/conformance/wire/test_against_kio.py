"""Every API, version and direction, byte for byte as kio has it (kio is generated from Apache Kafka's own schemas).

Where kio itself cannot, see ``test_beyond_kio``.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from kio.static.primitive import i16, i32

from oncelog.handlers.registry import APIS
from oncelog.wire.apis import BY_KEY, WIRE_APIS, WireApi
from oncelog.wire.chunks import join_chunks
from oncelog.wire.header import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
)
from tests.conformance.wire.kio_oracle import encoded, kio_bytes, kio_root, kio_versions, our_class, ours, random_entity

DIRECTIONS = ("request", "response")


def compare(api: WireApi, direction: str, seed: int, instances: int) -> None:
    for version in kio_versions(api):
        rng = random.Random(f"{api.module} {version} {direction} {seed}")
        kio_class = kio_root(api.module, version, direction)
        for _ in range(instances):
            entity = random_entity(kio_class, rng)
            expected = kio_bytes(entity)
            message = ours(entity, api.module, decoded=False)
            assert encoded(message, version) == expected
            assert type(message).decode(bytearray(expected), version) == ours(entity, api.module, decoded=True)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("api", WIRE_APIS, ids=lambda api: api.module)
def test_every_version_has_the_same_bytes_and_values_as_kio(api: WireApi, direction: str) -> None:
    compare(api, direction, seed=1, instances=6)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("api", WIRE_APIS, ids=lambda api: api.module)
def test_many_messages_of_every_version_have_the_same_bytes_and_values_as_kio(api: WireApi, direction: str) -> None:
    compare(api, direction, seed=2, instances=40)


@pytest.mark.parametrize("api", WIRE_APIS, ids=lambda api: api.module)
def test_headers_are_those_of_kio(api: WireApi) -> None:
    for version in kio_versions(api):
        request_class = kio_root(api.module, version, "request")
        message = our_class(api.module, request_class.__name__)()
        header = RequestHeader(api.key, version, 77, "a client")
        kio_header = request_class.__header_schema__(
            request_api_key=i16(api.key), request_api_version=i16(version), correlation_id=i32(77), client_id="a client"
        )
        body = encoded(message, version)
        frame = framed(kio_header, body)
        assert join_chunks(encode_request(header, message)) == frame
        assert decode_request_header(frame[4:]) == (header, len(frame) - 4 - len(body))

        response_class = kio_root(api.module, version, "response")
        answer = message.response_class()()
        assert type(answer).__name__ == response_class.__name__
        body = encoded(answer, version)
        frame = framed(response_class.__header_schema__(correlation_id=i32(77)), body)
        assert join_chunks(encode_response(77, api.key, version, answer)) == frame
        assert decode_response_header(frame[4:], api.key, version) == (77, len(frame) - 4 - len(body))


def framed(kio_header: Any, body: bytes) -> bytes:
    frame = kio_bytes(kio_header) + body
    return len(frame).to_bytes(4, "big") + frame


def test_every_api_of_the_registry_has_messages_for_all_its_versions() -> None:
    for api in APIS:
        wire = BY_KEY[api.key]
        assert (wire.name, wire.module) == (api.name, api.module)
        assert wire.min_version <= api.min_version <= api.max_version <= wire.max_version
