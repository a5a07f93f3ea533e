"""TLS: produce and consume over it, and handshakes as quickly as they go, with a bystander who wants answers meanwhile.

Both brokers have the same certificate (elliptic curve P-256, as trustme makes them) and a PLAINTEXT listener beside the
one with TLS. Clients are librdkafka for records and Python's ssl, in processes of their own, for handshakes.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
import ssl
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.certificates import Authority
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.oncelog_serve import OncelogServe
from tests.peers.process import Process, free_ports

from bench.options import Options, progress
from bench.peers import PAGE_CACHE, Broker, Processes, Served, create_topics, delete_topics
from bench.report import Comparison, Figures, paired
from bench.workloads import consume, percentile, produce
from oncelog.wire.header import RequestHeader, encode_request
from oncelog.wire.messages.api_versions import ApiVersionsRequest

_CLIENTS: Final = 2
"""Processes that make handshakes."""
_HANDSHAKE_S: Final = 4.0
_HELLO: Final = b"".join(map(bytes, encode_request(RequestHeader(18, 0, 1, "bench"), ApiVersionsRequest())))  # type: ignore[arg-type]  # no ranges


@dataclass
class TlsBroker:
    """A broker as clients see it that come by TLS."""

    broker: Broker
    port: int
    client_settings: Mapping[str, str]

    @property
    def bootstrap_servers(self) -> str:
        """The listener with TLS."""
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> Processes:
        """The broker's."""
        return self.broker.process


class _OncelogServe(OncelogServe):
    """`oncelog serve` with the listeners of its properties."""

    def launch(self) -> None:
        """Run it; it does not answer yet."""
        self.directory.mkdir(parents=True, exist_ok=True)
        file = self.directory / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self._properties.items()))
        command = [*self._command, "serve", "--data-dir", str(self.data_directory), "--config", str(file)]
        self._process = Process(command, self.directory / "broker.log")


def _listeners(plain: int, tls: int) -> str:
    return f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{tls}"


@dataclass
class _Stores:
    """A certificate for brokers, in the keys of both."""

    authority: Authority
    properties: Mapping[str, str]

    @classmethod
    def write(cls, directory: Path) -> _Stores:
        directory.mkdir(parents=True, exist_ok=True)
        authority = Authority()
        identity, trusted = authority.broker().write(directory), directory / "ca.pem"
        trusted.write_text(authority.pem)
        keys = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(identity)}
        return cls(authority, keys | {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trusted)})


@contextlib.contextmanager
def _oncelog(directory: Path, stores: _Stores) -> Iterator[TlsBroker]:
    plain, tls = free_ports(2)
    properties = {"listeners": _listeners(plain, tls), **stores.properties, **PAGE_CACHE}
    with _OncelogServe(directory / "oncelog", properties=properties, port=plain) as broker:
        yield TlsBroker(broker, tls, stores.authority.librdkafka())


@contextlib.contextmanager
def _apache_kafka(directory: Path, stores: _Stores) -> Iterator[TlsBroker]:
    plain, tls = free_ports(2)
    broker = ApacheKafka(directory / "kafka", heap_mb=1024, port=plain)
    controller = f"CONTROLLER://127.0.0.1:{broker._controller_port}"
    broker._properties |= {
        "listeners": f"{_listeners(plain, tls)},{controller}",
        "advertised.listeners": _listeners(plain, tls),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        **stores.properties,
    }
    with broker:
        yield TlsBroker(broker, tls, stores.authority.librdkafka())


def _compared(
    title: str, options: Options, goals: Mapping[str, str], side: Callable[[TlsBroker, Authority, int], Figures]
) -> Comparison:
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oncelog-bench-")))
        stores = _Stores.write(directory)
        brokers = (stack.enter_context(made(directory, stores)) for made in (_oncelog, _apache_kafka))
        sides = tuple(lambda number, each=broker: side(each, stores.authority, number) for broker in brokers)
        for item in sides:
            item(-1)
        comparison = Comparison(title, "oncelog", "Apache Kafka", goals)
        return paired(comparison, (sides[0], sides[1]), options.repeat, progress)


def tls_throughput(options: Options) -> Comparison:
    """Produce and consume records of 1 KB over TLS with librdkafka, acks=all, one partition."""
    count = options.scaled(300_000)

    def side(broker: TlsBroker, _authority: Authority, number: int) -> Figures:
        (topic,) = create_topics(broker.broker, 1, 1, f"tls{number}-{time.time_ns()}")
        try:
            made = produce(broker, topic, 1000, count, settings=broker.client_settings).figures("produce")
            return made | consume(broker, topic, 1000, count, settings=broker.client_settings).figures("consume")
        finally:
            delete_topics(broker.broker, [topic])

    goals = {f"{verb}, MB/s": "≥ 1.0 ×" for verb in ("produce", "consume")}
    goals |= {f"{verb}, broker CPU s/GB": "≤ 0.6 ×" for verb in ("produce", "consume")}
    return _compared("TLS, 1 KB", options, goals, side)


def tls_cost(options: Options) -> Comparison:
    """The cost of TLS: records of 1 KB by the listener with TLS and by the PLAINTEXT one, one partition."""
    count = options.scaled(300_000)
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oncelog-bench-")))
        broker = stack.enter_context(_oncelog(directory, _Stores.write(directory)))

        def side(served: Served, settings: Mapping[str, str]) -> Figures:
            (topic,) = create_topics(broker.broker, 1, 1, f"cost-{time.time_ns()}")
            try:
                made = produce(served, topic, 1000, count, settings=settings).figures("produce")
                return made | consume(served, topic, 1000, count, settings=settings).figures("consume")
            finally:
                delete_topics(broker.broker, [topic])

        sides = (lambda _: side(broker, broker.client_settings), lambda _: side(broker.broker, {}))
        for item in sides:
            item(-1)
        return paired(Comparison("TLS beside PLAINTEXT, 1 KB", "TLS", "PLAINTEXT", {}), sides, options.repeat, progress)


def tls_handshakes(options: Options) -> Comparison:
    """TLS handshakes a second, each of a new connection that asks once; and a bystander's wait meanwhile."""

    def side(broker: TlsBroker, authority: Authority, _number: int) -> Figures:
        cpu = broker.process.cpu_seconds()
        count, waits_ms = _storm(broker, authority, _HANDSHAKE_S * options.scale)
        cpu = broker.process.cpu_seconds() - cpu
        return {
            "handshakes/s": count / (_HANDSHAKE_S * options.scale),
            "broker CPU ms/handshake": cpu / count * 1e3,
            "bystander's p50, ms": percentile(waits_ms, 0.5),
            "bystander's p99, ms": percentile(waits_ms, 0.99),
        }

    return _compared("TLS handshakes", options, {"handshakes/s": "≥ 0.5 ×", "bystander's p99, ms": "≤ 5 ms"}, side)


def _storm(broker: TlsBroker, authority: Authority, seconds: float) -> tuple[int, list[float]]:
    """The handshakes made, and the waits of a plaintext connection that asks all the time, sorted."""
    context = multiprocessing.get_context("spawn")
    counts = context.Queue()
    makers = [
        context.Process(target=_make, args=(broker.port, authority.pem, seconds, counts)) for _ in range(_CLIENTS)
    ]
    for maker in makers:
        maker.start()
    for _ in makers:
        counts.get(timeout=60)  # all have begun
    waits_ms = _ask(broker.broker.port, seconds)
    total = sum(counts.get(timeout=60) for _ in makers)
    for maker in makers:
        maker.join()
    return total, sorted(waits_ms)


def _make(port: int, trusted: str, seconds: float, counts: multiprocessing.Queue[int]) -> None:
    context = ssl.create_default_context(cadata=trusted)
    counts.put(0)
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        with (
            socket.create_connection(("127.0.0.1", port)) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as tls,
        ):
            _answer(tls)
        count += 1
    counts.put(count)


def _ask(port: int, seconds: float) -> list[float]:
    waits_ms = []
    end = time.perf_counter() + seconds
    with socket.create_connection(("127.0.0.1", port)) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while (start := time.perf_counter()) < end:
            _answer(plain)
            waits_ms.append((time.perf_counter() - start) * 1e3)
            time.sleep(0.001)
    return waits_ms


def _answer(connection: socket.socket) -> None:
    connection.sendall(_HELLO)
    size = struct.unpack(">i", _exactly(connection, 4))[0]
    _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the broker has closed")
        data += more
    return data


TLS_BENCHMARKS: Final[Mapping[str, Callable[[Options], Comparison]]] = {
    "tls": tls_throughput,
    "tls-cost": tls_cost,
    "tls-handshakes": tls_handshakes,
}
