"""Every frame that real clients and Apache Kafka exchanged (the golden corpus) is decoded and encoded to itself."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from oncelog.base.errors import PeerError
from oncelog.wire.apis import BY_KEY
from oncelog.wire.chunks import join_chunks
from oncelog.wire.header import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
)
from tests.peers.recorder import Direction, load

WRONG_ON_PURPOSE = {"sweep.nonsense.xz", "sweep.api-versions.xz"}
"""Recordings with requests that are none."""
CORPUS = sorted((Path(__file__).parents[1] / "golden" / "data").glob("*.xz"))


def message_class(header: RequestHeader, kind: str) -> Any:
    api = BY_KEY[header.api_key]
    return getattr(importlib.import_module(f"oncelog.wire.messages.{api.module}"), api.name + kind)


def check_request(header: RequestHeader, frame: bytes, body: int) -> None:
    cls = message_class(header, "Request")
    if header.api_version > cls.MAX_VERSION:
        return  # franz-go begins with an ApiVersions yet to be defined
    again = join_chunks(encode_request(header, cls.decode(frame[body:], header.api_version)))[4:]
    # librdkafka's request for all topics has a few bytes more than it needs.
    assert frame.startswith(again)
    assert len(frame) - len(again) == 0 or header.client_id == "rdkafka"


@pytest.mark.slow
@pytest.mark.parametrize("recording", CORPUS, ids=lambda path: path.name)
def test_recorded_frames_are_decoded_and_encoded_to_themselves(recording: Path) -> None:
    requests: dict[tuple[int, int], RequestHeader] = {}
    for connection, direction, frame in load(recording):
        if direction is Direction.REQUEST:
            try:
                header, body = decode_request_header(frame)
                check_request(header, frame, body)
            except PeerError:
                assert recording.name in WRONG_ON_PURPOSE
                continue
            requests[connection, header.correlation_id] = header
        elif direction is Direction.RESPONSE:
            asker = connection, int.from_bytes(frame[:4], "big", signed=True)
            if asker not in requests:
                assert recording.name in WRONG_ON_PURPOSE
                continue
            header = requests.pop(asker)
            cls = message_class(header, "Response")
            version = header.api_version if header.api_version <= cls.MAX_VERSION else 0
            correlation_id, body = decode_response_header(frame, header.api_key, version)
            message = cls.decode(frame[body:], version)
            assert join_chunks(encode_response(correlation_id, header.api_key, version, message))[4:] == frame
