"""Connections that make room where file descriptors run out: those that have not shown what they want."""

from __future__ import annotations

import logging

import pytest

from oncelog.node.listeners.broker_settings import read_settings
from oncelog.runtime.connections.connection_quotas import ConnectionLimits, ConnectionQuotas


class Peer:
    """A client's connection."""

    def __init__(self, name: str) -> None:
        self.peer = name
        self.last_active_s = 0.0
        self.is_open = True

    def abort(self) -> None:
        self.is_open = False


def quotas_of(listeners: str) -> ConnectionQuotas:
    keys = {
        "listeners": listeners,
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
    }
    settings = read_settings(keys, data_directory="unused")
    limits = ConnectionLimits(lambda: settings.config, settings.listeners)
    return ConnectionQuotas(limits=limits, max_held_bytes=1 << 20, max_idle_s=600, max_stalled_s=30)


def test_the_oldest_stranger_of_the_address_with_most_makes_room_and_one_line(caplog: pytest.LogCaptureFixture) -> None:
    quotas = quotas_of("CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0")
    known, first, second, other = (Peer(name) for name in ("known", "first", "second", "other"))
    for peer, address in ((known, "a"), (other, "b"), (first, "a"), (second, "a")):
        quotas.admit(peer, address, "CLIENTS", 0.0)  # type: ignore[arg-type]  # as much of a peer as is used
    quotas.identified(known)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING, "oncelog.broker"):
        for expected in ((True, False, True, True), (True, False, False, True), (True, False, False, False)):
            quotas.make_room("CLIENTS")
            assert tuple(peer.is_open for peer in (known, first, second, other)) == expected
        quotas.make_room("CLIENTS")
    assert known.is_open
    assert quotas.cut_off == 3
    (line,) = caplog.messages
    assert line.startswith("closing connection from first, which has sent no request: others need its file descriptor")


@pytest.mark.parametrize(("listener", "is_open"), [("CLIENTS", True), ("BROKERS", False)])
def test_where_all_have_sent_something_a_broker_alone_takes_a_clients_place(listener: str, is_open: bool) -> None:
    quotas = quotas_of("CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0")
    known = Peer("known")
    quotas.admit(known, "a", "CLIENTS", 0.0)  # type: ignore[arg-type]
    quotas.identified(known)  # type: ignore[arg-type]
    quotas.make_room(listener)
    assert known.is_open == is_open
    quotas.leave(known, 0)  # type: ignore[arg-type]
    quotas.make_room(listener)


def test_a_refusal_before_a_connection_is_admitted_counts() -> None:
    quotas = quotas_of("BROKERS://127.0.0.1:0")
    quotas.count_refusal()
    assert quotas.refused == 1
