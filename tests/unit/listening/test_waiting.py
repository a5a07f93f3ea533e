"""The connection that makes room for another, and the lines that are logged of it."""

from __future__ import annotations

import logging

import pytest

from oncelog.listening.addresses import is_addressed_to
from oncelog.listening.limited_lines import EVERY_S, LimitedLines
from oncelog.listening.waiting import Waiting, source_of


def test_the_oldest_of_the_source_that_has_most_goes() -> None:
    waiting: Waiting[str] = Waiting()
    assert waiting.next_to_displace() is None
    assert waiting.newest_of_most() is None
    for connection, source in [("a1", "a"), ("b1", "b"), ("b2", "b"), ("b3", "b"), ("a2", "a")]:
        waiting.add(connection, source)
    assert (waiting.next_to_displace(), waiting.newest_of_most()) == ("b1", "b3")
    waiting.add("b1", "b")
    assert waiting.next_to_displace() == "b2", "one that comes again is the newest"
    waiting.discard("b2")
    waiting.discard("b3")
    waiting.discard("b3")
    assert waiting.next_to_displace() == "a1"
    waiting.discard("a1")
    waiting.discard("a2")
    assert (waiting.next_to_displace(), len(waiting), "b1" in waiting, waiting.count_of("a")) == ("b1", 1, True, 0)


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::9", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("?", "?"),
    ],
)
def test_a_source_is_an_ipv4_address_or_an_ipv6_network(host: str, source: str) -> None:
    assert source_of(host) == source


def test_what_happens_a_thousand_times_is_a_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 5.0
    seldom = LimitedLines(logging.getLogger("test"), logging.WARNING, lambda: now_s)
    for number in range(1000):
        seldom.log(f"event {number}")
    now_s += EVERY_S
    seldom.log("another")
    assert [record.message for record in caplog.records] == ["event 0", "another (999 more since the last line)"]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:9100", True),
        ("[::1]:9100", True),
        ("192.0.2.1", True),
        ("LOCALHOST:1", True),
        ("logs.example.:9100", True),
        ("evil.example", False),
        ("evil.example:9100", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        (":9100", False),
    ],
)
def test_host_headers_that_name_a_server(host: str, expected: bool) -> None:
    assert is_addressed_to(host, {"logs.example"}) == expected
