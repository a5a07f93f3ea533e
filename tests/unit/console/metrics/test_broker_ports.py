"""Brokers' metrics: what is wanted of them, rates and latencies of two readings, and ports that say nonsense."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

from oncelog.client.errors import ConfigError
from oncelog.console.metrics import broker_ports
from oncelog.console.metrics.broker_ports import checked_address, name_of, parsed, quantile_of, read_all, values_of

TEXT = """# HELP oncelog_requests_total Requests received.
# TYPE oncelog_requests_total counter
oncelog_requests_total{{api="Produce"}} {requests}
oncelog_requests_total{{api="Fe\\"tch"}} 5.0
oncelog_loop_delay_seconds 0.002
oncelog_open_transactions{{verdict="orphaned"}} 1.0
oncelog_open_transactions{{verdict="live"}} 7.0
oncelog_request_latency_seconds_bucket{{api="Produce",le="0.001"}} {fast}
oncelog_request_latency_seconds_bucket{{api="Produce",le="0.01"}} {all}
oncelog_request_latency_seconds_bucket{{api="Produce",le="+Inf"}} {all}
oncelog_request_latency_seconds_bucket{{api="Fetch",le="+Inf"}} 900.0
oncelog_group_lag{{group="x",topic="nonsense}} oh
"""


def test_rates_and_latencies_come_of_two_readings() -> None:
    first = parsed(TEXT.format(requests=10.0, fast=10, all=10), 100.0)
    second = parsed(TEXT.format(requests=30.0, fast=20, all=30), 110.0)
    assert values_of("b", None, first) == {("loop delay", "b"): 0.002, ("hanging", "b"): 1.0}
    values = values_of("b", first, second)
    assert values["requests", "b"] == 2.0
    assert values["produce p50", "b"] == pytest.approx(0.001)
    assert values["produce p99", "b"] == pytest.approx(0.00982, abs=1e-5)
    assert not any(name.startswith("fetch") for name, _ in values)
    restarted = values_of("b", second, parsed(TEXT.format(requests=1.0, fast=0, all=0), 120.0))
    assert set(restarted) == {("loop delay", "b"), ("hanging", "b")}


def test_quantiles_are_prometheus() -> None:
    assert quantile_of({}, 0.5) is None
    assert quantile_of({1.0: 0, float("inf"): 0}, 0.5) is None
    assert quantile_of({1.0: 10, 2.0: 20, float("inf"): 20}, 0.75) == pytest.approx(1.5)
    assert quantile_of({1.0: 1, float("inf"): 100}, 0.99) == 1.0


def test_addresses_are_checked() -> None:
    assert checked_address("http://b:9100") == "http://b:9100/metrics"
    assert checked_address("b:9100") == "http://b:9100/metrics"
    assert checked_address("https://b/m?x=1") == "https://b/m?x=1"
    assert name_of("http://user:secret@b:9100/metrics") == "b:9100"
    for wrong in ("file:///etc/passwd", "http://", "", "ftp://b/", "b:metrics", "b:0", "b:99999", "http://[b/"):
        with pytest.raises(ConfigError):
            checked_address(wrong)


class _Port(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/other":
            self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")
            return
        answers = {"/good": TEXT.format(requests=1, fast=1, all=1), "/bad": "oncelog_requests_total{x\n"}
        answers["/foreign"] = "jvm_threads_current 42\n"
        answers["/large"] = "oncelog_connections 1\n" * 9
        text = answers.get(self.path, "").encode()
        self.send_response(200 if text else 404)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def port() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Port) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.slow
def test_ports_that_are_away_or_talk_nonsense_are_reasons(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (good,) = read_all([f"{port}/good"], 1.0).values()
    assert not isinstance(good, str)
    assert good.counters["requests"] == 6
    reasons = [
        next(iter(read_all([item], 1.0).values())) for item in (f"{port}/bad", f"{port}/x", "http://127.0.0.1:9/")
    ]
    assert [str(reason)[:10] for reason in reasons[:2]] == ["the answer", "HTTP statu"]
    assert reasons[2] == "connection refused"
    assert next(iter(read_all([f"{port}/other"], 1.0).values())) == "the answer is not HTTP: SSH-2.0-OpenSSH_9.2"
    assert "no oncelog metrics" in str(next(iter(read_all([f"{port}/foreign"], 1.0).values())))
    monkeypatch.setattr(broker_ports, "MAX_SAMPLES", 5)
    assert "the maximum is 5" in str(next(iter(read_all([f"{port}/large"], 1.0).values())))
    monkeypatch.setattr(broker_ports, "MAX_ANSWER_BYTES", 20)
    assert "larger than 20 bytes" in str(next(iter(read_all([f"{port}/large"], 1.0).values())))
    assert read_all([], 1.0) == {}
