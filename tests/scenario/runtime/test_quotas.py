"""Quotas that the outside has a part in: what requests cost, and how often an address connects."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from oncelog.testing import Broker
from oncelog.wire.header import decode_response_header
from oncelog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from oncelog.wire.messages.metadata import MetadataRequest
from tests.scenario.runtime.test_peers_that_misbehave import connect, encoded, read_frame
from tests.waiting import HANG_S


def ask(peer: Any, request: Any, version: int) -> Any:
    peer.sendall(encoded(request, version, 1))
    frame = read_frame(peer)
    _, position = decode_response_header(frame, request.API_KEY, version)
    return request.response_class().decode(frame[position:], version)


def set_quota(broker: Broker, kind: str, key: str, value: float) -> None:
    entry = EntryData(entity=[EntityData(entity_type=kind, entity_name=None)], ops=[OpData(key=key, value=value)])
    with connect(broker) as peer:
        assert ask(peer, AlterClientQuotasRequest(entries=[entry]), 1).entries[0].error_code == 0


def test_request_time_is_measured_while_a_quota_asks_for_it() -> None:
    with Broker() as broker:
        set_quota(broker, "user", "request_percentage", 1e-6)
        with connect(broker) as peer:
            first, second = (ask(peer, MetadataRequest(topics=[]), 12) for _ in range(2))
        assert first.throttle_time_ms == 0
        assert 0 < second.throttle_time_ms <= 1000


@pytest.mark.slow
def test_an_address_that_connects_too_often_is_closed_after_a_delay() -> None:
    with Broker() as broker, ExitStack() as peers:
        set_quota(broker, "ip", "connection_creation_rate", 1.0)
        answered = 0
        while answered < 200:
            peer = peers.enter_context(connect(broker))
            peer.settimeout(HANG_S)
            peer.sendall(encoded(MetadataRequest(topics=[]), 12, 1))
            try:
                answer = peer.recv(1)
            except ConnectionResetError:  # asyncio closes without uvloop's shutdown before
                break
            if not answer:
                break  # closed unread
            answered += 1
        assert 10 <= answered < 200
