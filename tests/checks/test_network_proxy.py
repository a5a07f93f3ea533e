"""The proxy that cuts passes every byte on, in order, and the end of each direction by itself."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.peers.cut_network import CutNetwork
from tests.peers.network_proxy import Cuts, NetworkConditions, Proxy

REQUEST, ANSWER = random.Random(1).randbytes(30_000), random.Random(2).randbytes(40_000)


@pytest.fixture
def server() -> Iterator[tuple[str, int]]:
    """A server that reads a request to its end before it answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                assert received(connection) == REQUEST
                connection.sendall(ANSWER)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()
        thread.join()


def received(connection: socket.socket) -> bytes:
    data = bytearray()
    while piece := connection.recv(1 << 16):
        data += piece
    return bytes(data)


def test_all_bytes_and_both_ends_arrive(server: tuple[str, int]) -> None:
    proxy = Proxy(server, conditions=NetworkConditions(cuts=Cuts(seed=1)))
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:
        client.sendall(REQUEST)
        client.shutdown(socket.SHUT_WR)
        assert received(client) == ANSWER
    proxy.close()


def test_pieces_are_small_and_follow_the_seed() -> None:
    def sizes(seed: int) -> list[int]:
        return list(Cuts(seed).sizes(random.Random(seed), 100_000))

    assert sum(sizes(1)) == 100_000
    assert max(sizes(1)) <= 1_400
    assert min(sizes(1)) == 1
    assert sizes(1) == sizes(1) != sizes(2)


def test_the_network_is_named_by_kind_and_seed() -> None:
    assert CutNetwork.parse("cut") == CutNetwork(1, with_tls=False)
    assert CutNetwork.parse("cut-tls:7") == CutNetwork(7, with_tls=True)
    with pytest.raises(ValueError, match="cut or cut-tls"):
        CutNetwork.parse("lossy:7")
