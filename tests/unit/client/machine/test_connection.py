"""The connection machine, wired to bytes by hand: negotiation, order, and what a broken broker may send."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.base.errors import ErrorCode, PeerError
from oncelog.base.invariant import InvariantViolation
from oncelog.client.errors import RebootstrapRequired, UnsupportedRequest
from oncelog.client.machine.connection import Connection, ExpectedBroker, Phase
from oncelog.wire.chunks import Chunk, join_chunks
from oncelog.wire.header import decode_request_header, encode_response
from oncelog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse

RANGES = [
    ApiVersion(api_key=18, min_version=0, max_version=3),
    ApiVersion(api_key=12, min_version=0, max_version=2),
    ApiVersion(api_key=3, min_version=4, max_version=99),
]


def new_connection() -> Connection:
    return Connection("me", max_response_bytes=1 << 20)


def header_of(chunks: list[Chunk]) -> Any:
    data = join_chunks(chunks)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return decode_request_header(data[4:])[0]


def response(correlation_id: int, api_key: int, version: int, message: Any) -> bytes:
    return join_chunks(encode_response(correlation_id, api_key, version, message))


def ready() -> Connection:
    connection = new_connection()
    header = header_of(connection.start())
    connection.feed(response(0, 18, header.api_version, ApiVersionsResponse(api_keys=RANGES)))
    assert connection.phase is Phase.READY
    return connection


def test_versions_are_asked_first_and_the_highest_common_one_is_used() -> None:
    connection = ready()
    assert header_of(connection.send(HeartbeatRequest())[1]).api_version == 2
    assert header_of(connection.send(MetadataRequest())[1]).api_version == MetadataRequest.MAX_VERSION


def test_an_older_broker_is_asked_again_with_a_version_it_has() -> None:
    connection = new_connection()
    first = header_of(connection.start())
    assert first.api_version == ApiVersionsRequest.MAX_VERSION
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=RANGES[:1])
    again = header_of(connection.feed(response(0, 18, 0, refusal)))
    assert again.api_version == 3
    connection.feed(response(again.correlation_id, 18, 3, ApiVersionsResponse(api_keys=RANGES)))
    assert connection.phase is Phase.READY


def versions_asked(chunks: list[Chunk]) -> tuple[int, str | None, int]:
    """The version of an ApiVersions request, and the cluster and broker that it expects."""
    frame = join_chunks(chunks)[4:]
    header, position = decode_request_header(frame)
    request = ApiVersionsRequest.decode(memoryview(frame)[position:], header.api_version)
    return header.api_version, request.cluster_id, request.node_id


def test_the_expected_broker_is_named_to_brokers_that_compare_it() -> None:
    assert versions_asked(new_connection().start()) == (5, None, -1)
    connection = Connection("me", max_response_bytes=1 << 20, expected_broker=ExpectedBroker("c", 7))
    assert versions_asked(connection.start()) == (5, "c", 7)
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=RANGES[:1])
    assert versions_asked(connection.feed(response(0, 18, 0, refusal))) == (3, None, -1)
    connection.feed(response(1, 18, 3, ApiVersionsResponse(api_keys=RANGES)))
    assert connection.phase is Phase.READY
    assert connection.broker_check() is None, "it would be sent in a version that cannot name the broker"


def test_another_broker_than_the_expected_one_is_refused() -> None:
    refusal = ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    connection = Connection("me", max_response_bytes=1 << 20, expected_broker=ExpectedBroker("c", 7))
    connection.start()
    for byte in response(0, 18, 5, refusal)[:-1]:
        assert connection.feed(bytes([byte])) == []
    with pytest.raises(RebootstrapRequired, match="broker 7 of cluster c"):
        connection.feed(response(0, 18, 5, refusal)[-1:])
    assert connection.phase is Phase.CLOSED
    connection = new_connection()
    connection.start()
    with pytest.raises(PeerError):
        connection.feed(response(0, 18, 5, refusal))


def test_a_broker_that_names_no_range_is_asked_with_version_0() -> None:
    connection = new_connection()
    connection.start()
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    assert header_of(connection.feed(response(0, 18, 0, refusal))).api_version == 0


def test_a_broker_that_refuses_version_0_too_is_given_up() -> None:
    connection = new_connection()
    connection.start()
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    connection.feed(response(0, 18, 0, refusal))
    with pytest.raises(PeerError):
        connection.feed(response(1, 18, 0, refusal))
    assert connection.phase is Phase.CLOSED


def test_nothing_else_may_be_sent_before_the_versions_are_agreed() -> None:
    connection = new_connection()
    connection.start()
    with pytest.raises(InvariantViolation):
        connection.send(HeartbeatRequest())


def test_responses_come_back_in_order_a_byte_at_a_time() -> None:
    connection = ready()
    ids = [connection.send(HeartbeatRequest())[0] for _ in range(3)]
    data = b"".join(response(id_, 12, 2, HeartbeatResponse(throttle_time_ms=id_)) for id_ in ids)
    answers = []
    for at in range(len(data)):
        connection.feed(data[at : at + 1])
        while (answer := connection.next_response()) is not None:
            answers.append((answer.correlation_id, answer.decode().throttle_time_ms))
    assert answers == [(id_, id_) for id_ in ids]
    assert connection.in_flight == 0


def test_a_correlation_id_out_of_order_closes_the_connection() -> None:
    connection = ready()
    connection.send(HeartbeatRequest())
    second = connection.send(HeartbeatRequest())[0]
    connection.feed(response(second, 12, 2, HeartbeatResponse()))
    with pytest.raises(PeerError):
        connection.next_response()
    assert connection.phase is Phase.CLOSED


def test_a_response_nobody_asked_for_closes_the_connection() -> None:
    connection = ready()
    connection.feed(response(1, 12, 2, HeartbeatResponse()))
    with pytest.raises(PeerError):
        connection.next_response()


def test_a_request_without_a_response_expects_none() -> None:
    connection = ready()
    silent, _ = connection.send(HeartbeatRequest(), answered=False)
    requests, _ = connection.send(HeartbeatRequest())
    assert requests == silent + 1
    connection.feed(response(requests, 12, 2, HeartbeatResponse()))
    answer = connection.next_response()
    assert answer is not None
    assert answer.correlation_id == requests


def test_a_body_that_is_no_message_is_refused_when_it_is_decoded() -> None:
    connection = ready()
    requests, _ = connection.send(MetadataRequest())
    connection.feed(response(requests, 3, MetadataRequest.MAX_VERSION, MetadataResponse())[:-1] + b"\xff")
    answer = connection.next_response()
    assert answer is not None
    with pytest.raises(PeerError):
        answer.decode()


def test_a_request_the_broker_does_not_have_is_refused_here() -> None:
    from oncelog.wire.messages.create_topics import CreateTopicsRequest

    with pytest.raises(UnsupportedRequest, match="CreateTopicsRequest"):
        ready().send(CreateTopicsRequest())


def test_what_a_version_cannot_say_is_refused_here_and_the_connection_goes_on() -> None:
    connection = ready()
    with pytest.raises(UnsupportedRequest, match="HeartbeatRequest"):
        connection.send(HeartbeatRequest(group_id="g" * 40_000))
    assert connection.send(HeartbeatRequest())[0] == 1


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.6\r\n", b"\xff" * 64])
def test_what_is_no_broker_is_noticed(garbage: bytes) -> None:
    connection = new_connection()
    connection.start()
    with pytest.raises(PeerError):
        connection.feed(garbage)
