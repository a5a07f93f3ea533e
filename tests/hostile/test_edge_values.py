"""Well-formed requests with values at the edges, carried out by a real broker: answered, or its connection ends."""

from __future__ import annotations

import logging
import socket
import struct

import pytest

from oncelog.client.blocking import Client
from oncelog.testing import Broker
from tests.hostile.edge_values import Asked, EdgeValues
from tests.waiting import HANG_S

pytestmark = pytest.mark.slow
REQUESTS = 2500
TOPICS = ["t", "u"]


class Peer:
    """A connection that is made again when the broker has closed it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._socket = self._connect()

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: Asked) -> None:
        """Send a request, and wait for its answer or for the end of the connection."""
        try:
            self._socket.sendall(request.frame)
            if request.is_answered:
                (size,) = struct.unpack(">i", self._read(4))
                self._read(size)
        except ConnectionError:
            self._socket.close()
            if self._broker.is_running:
                self._socket = self._connect()

    def _connect(self) -> socket.socket:
        return socket.create_connection((self._broker.host, self._broker.port), timeout=HANG_S)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionResetError
            data += piece
        return data


@pytest.mark.parametrize("seed", [4, 8])  # both found what ended a broker
def test_no_request_ends_the_broker_or_remains_without_an_answer(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    with Broker() as broker, Client(broker.bootstrap_servers) as client:
        client.metadata(TOPICS, create=True)
        values = EdgeValues(seed, [bytes(client.topic(name).topic_id) for name in TOPICS])
        peer = Peer(broker)
        for _ in range(REQUESTS):
            response = values.request()
            peer.ask(response)
            assert broker.is_running, response
            assert not caplog.records, f"{response}: {caplog.text}"
        peer.close()
        client.metadata(["v"], create=True)
        assert client.topic("v").exists
