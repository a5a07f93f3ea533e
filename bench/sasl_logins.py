"""Thousands of wrong logins, and a bystander on another listener: its latency meanwhile, and the broker's memory.

`python -m bench.sasl_logins PORT COUNT` is the process that knocks: each login a connection of its own, by SCRAM with a
name that does not exist and a password that is wrong, as fast as the answers come, two hundred at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.conformance.logins.conversations import PLAINTEXT, SASL, Ask
from tests.conformance.logins.record import properties
from tests.conformance.logins.speaking import Speaker, add_carol
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.process import Process, free_ports

from bench.report import Figures
from bench.workloads import percentile
from oncelog.client.machine.sasl.scram import Scram
from oncelog.wire.header import RequestHeader, encode_request
from oncelog.wire.messages.metadata import MetadataRequest
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest

Secured = Callable[[Path], contextlib.AbstractContextManager[tuple[Process, int, int]]]
"""Runs a broker in a directory: its process, and the ports of its listeners without SASL and with."""
LOGINS: Final = 5000
AT_ONCE: Final = 200
LOGIN_GOALS: Final = {"bystander's p99, ms": "≤ 20 ms", "memory, MB more": "≤ 20 MB"}
HOST: Final = "127.0.0.1"
_PAUSE_S: Final = 0.002
_ASKED: Final = Ask(MetadataRequest(topics=[]), 9)
_MECHANISM: Final = "SCRAM-SHA-256"


def figures(process: Process, plaintext: int, sasl: int) -> Figures:
    """Of one broker, which is warm and knows nobody but carol."""
    bystander = Speaker((HOST, plaintext))
    quiet_ms = [_latency_ms(bystander) for _ in range(500)]
    before = process.resident_bytes()
    knocking = subprocess.Popen([sys.executable, "-m", "bench.sasl_logins", str(sasl), str(LOGINS)])
    started = time.perf_counter()
    latencies_ms, most = [], before
    while knocking.poll() is None:
        latencies_ms.append(_latency_ms(bystander))
        if len(latencies_ms) % 50 == 0:
            most = max(most, process.resident_bytes())
        time.sleep(_PAUSE_S)
    took_s = time.perf_counter() - started
    bystander.close()
    if knocking.returncode:
        raise RuntimeError("the wrong logins were not all refused")
    return {
        "bystander's p99, ms": percentile(sorted(latencies_ms), 0.99),
        "bystander's p99 before, ms": percentile(sorted(quiet_ms), 0.99),
        "memory, MB more": (most - before) / 1e6,
        "wrong logins a second": LOGINS / took_s,
    }


def _latency_ms(bystander: Speaker) -> float:
    started = time.perf_counter()
    bystander.say(_ASKED)
    return (time.perf_counter() - started) * 1000


@contextlib.contextmanager
def secured_oncelog(directory: Path) -> Iterator[tuple[Process, int, int]]:
    """A broker with a listener of each kind; its process and their ports."""
    plaintext, sasl, ending, controller = free_ports(4)
    values = properties({PLAINTEXT: (HOST, plaintext), SASL: (HOST, sasl), "ENDING": (HOST, ending)}, controller)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "server.properties"
    values |= {"controller.listener.names": "CONTROLLER", "log.sync.policy": "none"}
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()), encoding="utf-8")
    program = str(Path(sys.executable).with_name("oncelog"))
    command = [program, "serve", "--config", str(path), "--data-dir", str(directory / "data")]
    process = Process(command, directory / "broker.log")
    try:
        process.wait_ready(HOST, plaintext)
        add_carol((HOST, plaintext))
        yield process, plaintext, sasl
    finally:
        process.kill()


@contextlib.contextmanager
def secured_kafka(directory: Path) -> Iterator[tuple[Process, int, int]]:
    """Apache Kafka with the same listeners."""
    plaintext, sasl, ending, controller = free_ports(4)
    values = properties({PLAINTEXT: (HOST, plaintext), SASL: (HOST, sasl), "ENDING": (HOST, ending)}, controller)
    values["controller.quorum.voters"] = f"1@{HOST}:{controller}"
    with ApacheKafka(directory, heap_mb=1024, properties=values, port=plaintext) as kafka:
        add_carol((HOST, plaintext))
        yield kafka.process, plaintext, sasl


async def _knock(port: int, number: int) -> None:
    reader, writer = await asyncio.open_connection(HOST, port)
    client = Scram(_MECHANISM, "carol" if number % 2 else f"nobody-{number}", "wrong", f"nonce-{number}")
    try:
        await _ask(reader, writer, SaslHandshakeRequest(mechanism=_MECHANISM), 1)
        first = await _ask(reader, writer, SaslAuthenticateRequest(auth_bytes=client.first()), 2)
        if first is not None and first[4 + 1 : 4 + 3] == b"\0\0":  # Apache Kafka refuses unknown names here
            wrong = b"c=biws,r=nonce,p=" + b"A" * 43 + b"="
            await _ask(reader, writer, SaslAuthenticateRequest(auth_bytes=wrong), 2)
        if await reader.read(1):
            raise RuntimeError("the connection was not closed")
    finally:
        writer.close()


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: object, version: int) -> bytes:
    header = RequestHeader(request.API_KEY, version, 1, "knocking")  # type: ignore[attr-defined]  # any request
    writer.write(b"".join(map(bytes, encode_request(header, request))))  # type: ignore[arg-type]  # and no ranges
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(size)


async def _knock_all(port: int, count: int) -> None:
    numbers = iter(range(count))

    async def one_after_the_other() -> None:
        for number in numbers:
            await _knock(port, number)

    await asyncio.gather(*(one_after_the_other() for _ in range(AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(_knock_all(int(sys.argv[1]), int(sys.argv[2])))
