"""Strangers at a broker with few file descriptors: they hold their share, and everybody else goes on."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.peers.oncelog_serve import OncelogServe
from tests.peers.process import free_ports
from tests.waiting import HANG_S, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="/proc counts descriptors")]
LIMIT = 256
STRANGERS = {"listener": 300, "HTTP port": 100}
QUIET = {"log_level": 0}


@contextmanager
def broker_with_few_descriptors(directory: Path, http: int) -> Iterator[OncelogServe]:
    oncelog = str(Path(sys.executable).with_name("oncelog"))
    limited = ["bash", "-c", f'ulimit -n {LIMIT}; exec "$0" "$@" --http 127.0.0.1:{http}', oncelog]
    with OncelogServe(directory, command=limited) as broker:
        yield broker
        assert broker.stop() == 0


def descriptors(broker: OncelogServe) -> int:
    return len(list(Path(f"/proc/{broker.process.pid}/fd").iterdir()))


def strangers(count: int, port: int, until: ExitStack) -> list[socket.socket]:
    """Connections that never send anything."""
    connected = []
    for _ in range(count):
        context = until.enter_context(socket.socket())
        context.setblocking(False)
        context.connect_ex(("127.0.0.1", port))
        connected.append(context)
    return connected


def are_held(connections: list[socket.socket]) -> int:
    """How many of some connections are open."""
    held = 0
    for connection in connections:
        try:
            connection.recv(1)
        except BlockingIOError:
            held += 1
        except OSError:
            pass
    return held


def make_topics(admin: AdminClient, *names: str) -> None:
    for made in admin.create_topics([NewTopic(name, 4, 1) for name in names]).values():
        made.result(HANG_S)


def produce(servers: str, topic: str) -> None:
    failures: list[object] = []
    producer = Producer({**QUIET, "bootstrap.servers": servers, "enable.idempotence": True})
    for _ in range(100):
        producer.produce(topic, b"value", on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(HANG_S) == 0
    assert failures == []


def scraped(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), HANG_S) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return connection.recv(12)


@pytest.mark.parametrize("where", ["listener", "HTTP port"])
def test_silent_strangers_leave_descriptors_for_logs_modules_and_clients(tmp_path: Path, where: str) -> None:
    (http,) = free_ports(1)
    with ExitStack() as until, broker_with_few_descriptors(tmp_path, http) as broker:
        servers = broker.bootstrap_servers
        first = AdminClient({**QUIET, "bootstrap.servers": servers})
        first.list_topics(timeout=HANG_S)
        connected = strangers(STRANGERS[where], http if where == "HTTP port" else broker.port, until)
        if where == "listener":
            wait_until(lambda: are_held(connected) < LIMIT // 2, "strangers are refused")
        make_topics(first, "made-by-a-known-client")
        second = AdminClient({**QUIET, "bootstrap.servers": servers})
        make_topics(second, *(f"made-by-a-new-client-{number}" for number in range(16)))
        assert second.list_consumer_groups().result(HANG_S).errors == []
        produce(servers, "made-by-a-known-client")
        assert scraped(http) == b"HTTP/1.1 200"
        assert descriptors(broker) < LIMIT
    log = (tmp_path / "broker.log").read_text()
    assert "Traceback" not in log
    assert 0 < log.count("ulimit -n is 256") <= 4 or where == "HTTP port"


PROGRAM = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from oncelog.testing import Broker, Cluster

def produce(servers, replicas, partitions):
    client = {"bootstrap.servers": servers, "log_level": 0}
    admin = AdminClient(client)
    admin.create_topics([NewTopic("t", partitions, replicas)])["t"].result(30)
    producer, failures = Producer(client), []
    for partition in range(partitions):
        producer.produce("t", b"x", partition=partition, on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(30) == 0 and not failures, failures
    assert "t" in AdminClient(client).list_topics(timeout=30).topics, "a new client is served"

with Cluster(3) as cluster:
    produce(cluster.bootstrap_servers, 3, 90)
opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(340)]
with Broker() as broker:
    produce(broker.bootstrap_servers, 1, 10)
os._exit(0)
"""


def test_brokers_of_a_program_serve_new_clients_beside_open_files_and_what_the_program_opened() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=4 * HANG_S)
    assert (ran.returncode, ran.stderr) == (0, "")
