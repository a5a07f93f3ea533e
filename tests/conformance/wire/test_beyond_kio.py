"""Messages for which kio 0.6.5 cannot be the oracle, and what it is to be instead."""

from __future__ import annotations

import pytest
from kio.serial import entity_reader

from oncelog.base.errors import PeerError
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from oncelog.wire.messages.describe_transactions import DescribeTransactionsResponse, TransactionState
from oncelog.wire.messages.metadata import MetadataRequest
from oncelog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.conformance.wire.kio_oracle import encoded, kio_bytes, kio_root, ours


def test_a_transaction_that_has_not_started_has_start_time_minus_one() -> None:
    """kio decodes the time as a date and fails on -1."""
    response = DescribeTransactionsResponse(
        transaction_states=[TransactionState(transactional_id="t", transaction_start_time_ms=-1)]
    )
    data = encoded(response, 0)
    assert DescribeTransactionsResponse.decode(data, 0) == response
    with pytest.raises(Exception, match=r"."):
        entity_reader(kio_root("describe_transactions", 0, "response"))(data, 0)


def test_tagged_fields_that_we_do_not_know_are_skipped() -> None:
    """kio raises KeyError."""
    data = encoded(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
    assert data[-1] == 0
    extended = data[:-1] + bytes((2, 5, 3)) + b"abc" + bytes((0x90, 0x4E, 0))
    assert ApiVersionsRequest.decode(extended, 4) == ApiVersionsRequest.decode(data, 4)


def test_bytes_after_a_request_are_ignored_as_by_apache_kafka() -> None:
    """librdkafka 2 asks for all topics like this: a null array of 4 bytes where one is meant, then three flags."""
    assert MetadataRequest.decode(bytes((0, 0, 0, 0, 1, 0, 0)), 13) == MetadataRequest(
        topics=None, allow_auto_topic_creation=False
    )


def test_bytes_after_a_response_are_refused() -> None:
    """kio leaves them to its caller."""
    data = encoded(ApiVersionsResponse(), 4)
    with pytest.raises(PeerError, match="1 bytes left"):
        ApiVersionsResponse.decode(data + b"\0", 4)


def test_the_start_offset_of_an_administrative_abort_is_tagged_field_10000() -> None:
    marker = WritableTxnMarker(
        producer_id=4000,
        producer_epoch=3,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[2])],
        coordinator_epoch=9,
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    plain = encoded(request, 1)
    kio_request = entity_reader(kio_root("write_txn_markers", 1, "request"))(plain, 0)[0]
    assert kio_bytes(kio_request) == plain
    assert ours(kio_request, "write_txn_markers", decoded=True) == request

    marker.start_offset = 123_456
    tagged = encoded(request, 1)
    # One tag, 10000 as a varint, 8 bytes; then the end of the request, which has no tags.
    assert tagged == plain[:-2] + bytes((1, 0x90, 0x4E, 8)) + (123_456).to_bytes(8, "big") + plain[-1:]
    assert WriteTxnMarkersRequest.decode(tagged, 1) == request


def test_whose_a_transaction_is_and_what_was_found_out_about_it_are_tagged_fields_10000_and_10001() -> None:
    state = ProducerState(producer_id=4000, producer_epoch=3, current_txn_start_offset=550)
    partition = PartitionResponse(partition_index=2, active_producers=[state])
    response = DescribeProducersResponse(topics=[TopicResponse(name="t", partitions=[partition])])
    plain = encoded(response, 0)
    kio_response = entity_reader(kio_root("describe_producers", 0, "response"))(plain, 0)[0]
    assert kio_bytes(kio_response) == plain

    state.transactional_id, state.verdict = "my-id", "live"
    tagged = encoded(response, 0)
    # Two tags, each with its size and a compact string; then the ends of partition, topic and response without tags.
    tags = bytes((2, 0x90, 0x4E, 6, 6)) + b"my-id" + bytes((0x91, 0x4E, 5, 5)) + b"live"
    assert tagged == plain[:-4] + tags + bytes(3)
    assert DescribeProducersResponse.decode(tagged, 0) == response
