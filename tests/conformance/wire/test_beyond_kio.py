"""What kio 0.6.5 cannot be the oracle for, and what it is to be instead."""

from __future__ import annotations

import pytest
from kio.serial import entity_reader

from oncelog.base.errors import PeerError
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
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
