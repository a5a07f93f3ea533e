"""Limits of connections: of the broker, of a listener, of an address; and how quickly they may come."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from oncelog.node.listeners.broker_settings import ConfigError, read_settings
from oncelog.runtime.connections.connection_quotas import ConnectionLimits, ConnectionQuotas, Rate
from tests.waiting import HANG_S, wait_until

TWO = {"listeners": "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0"}
TWO["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT"


class FakePeer:
    """A connection that notes whether it was closed."""

    peer = "a peer"

    def __init__(self, last_active_s: float = 0.0) -> None:
        self.last_active_s = last_active_s
        self.is_closed = False

    def send(self, chunks: Sequence[object]) -> None: ...
    def pause_reading(self, why: str) -> None: ...
    def resume_reading(self, why: str) -> None: ...
    def stalled_since_s(self) -> float | None: ...
    def close_after_sending(self) -> None: ...

    def abort(self) -> None:
        self.is_closed = True


def quotas(**keys: str) -> ConnectionQuotas:
    config = {**TWO, **{key.replace("_", "."): text for key, text in keys.items()}}
    settings = read_settings(config)
    limits = ConnectionLimits(lambda: settings.config, settings.listeners)
    limits.resolve()
    return ConnectionQuotas(limits=limits, max_held_bytes=1 << 20, max_idle_s=600, max_stalled_s=30)


def admitted(of: ConnectionQuotas, *listeners: str, ip: str = "10.0.0.1") -> list[bool]:
    return [of.admit(FakePeer(), ip, listener, 0.0) is not None for listener in listeners]


def test_a_listener_has_a_limit_of_its_own() -> None:
    result = quotas(**{"listener.name.outside.max.connections": "1"})
    assert admitted(result, "OUTSIDE", "OUTSIDE", "PLAINTEXT") == [True, False, True]
    assert result.refused == 1


def test_an_address_may_have_a_limit_of_its_own() -> None:
    result = quotas(max_connections_per_ip="1", **{"max.connections.per.ip.overrides": "10.0.0.7:2, localhost:3"})
    assert admitted(result, *["OUTSIDE"] * 3, ip="10.0.0.7") == [True, True, False]
    assert admitted(result, *["OUTSIDE"] * 4, ip="127.0.0.1") == [True, True, True, False]
    assert admitted(result, *["OUTSIDE"] * 2) == [True, False]


def test_a_name_is_asked_for_at_the_start_or_by_a_thread_and_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, asked_by = threading.Event(), list[str]()
    ask = socket.getaddrinfo

    def slow(host: str, *arguments: Any, **options: Any) -> Any:
        if host == "localhost":
            asked_by.append(threading.current_thread().name)
            assert answered.wait(HANG_S)
        return ask(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    config = {**TWO, "max.connections.per.ip.overrides": "10.0.0.7:2,localhost:3"}
    settings = read_settings(config)
    limits = ConnectionLimits(lambda: settings.config, settings.listeners)
    assert limits.of_address("10.0.0.7") == 2, "an address counts at once"
    assert limits.of_address("127.0.0.1") > 3
    answered.set()
    wait_until(lambda: limits.of_address("127.0.0.1") == 3, "the name's address")
    limits.resolve()
    assert limits.of_address("127.0.0.1") == 3
    assert asked_by == ["oncelog-names", threading.current_thread().name]


@pytest.mark.parametrize("text", ["10.0.0.7", "10.0.0.7:many", ":1"])
def test_overrides_are_pairs(text: str) -> None:
    with pytest.raises(ConfigError, match=r"expected host:limit but got"):
        quotas(**{"max.connections.per.ip.overrides": text})


def test_a_broker_gets_the_place_of_the_client_that_was_silent_for_the_longest() -> None:
    result = quotas(max_connections="2")
    silent, active = FakePeer(1.0), FakePeer(2.0)
    for item in (active, silent):
        assert result.admit(item, "10.0.0.1", "OUTSIDE", 0.0) == 0.0
    assert admitted(result, "OUTSIDE", "PLAINTEXT") == [False, True]
    assert (silent.is_closed, active.is_closed) == (True, False)


def test_connections_above_a_rate_wait_their_turn() -> None:
    rate = Rate()
    assert [rate.delay_s(2, 100.0) for _ in range(20)] == [0.0] * 20, "ten seconds' worth at once"
    assert [rate.delay_s(2, 100.0) for _ in range(3)] == [0.5, 1.0, 1.5]
    assert rate.delay_s(2, 103.0) == 0.0
    assert rate.delay_s(2**31 - 1, 103.0) == 0.0


def test_the_rate_of_the_broker_is_not_that_of_brokers() -> None:
    result = quotas(
        **{"max.connection.creation.rate": "1", "listener.name.plaintext.max.connection.creation.rate": "2"}
    )
    waits = {
        name: [result.admit(FakePeer(), "10.0.0.1", name, 0.0) for _ in range(21)] for name in ("OUTSIDE", "PLAINTEXT")
    }
    assert waits["OUTSIDE"][9:12] == [0.0, 1.0, 2.0]
    assert waits["PLAINTEXT"][19:] == [0.0, 0.5]
