"""Apicurio Registry beside us, on loopback, with schemas in memory: `with apicurio(directory) as url:`."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.peers.jars import APICURIO, APICURIO_VERSION
from tests.peers.process import Process, free_ports
from tests.waiting import wait_until


@contextmanager
def apicurio(directory: Path) -> Iterator[str]:
    """The URL of its API that is Confluent's, version 7. Raises PeerMissing."""
    home = APICURIO.home()
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    command = [
        *("java", "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *("-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"),
        *("-jar", str(home / f"apicurio-registry-app-{APICURIO_VERSION}-runner.jar")),
    ]
    process = Process(command, log=directory / "apicurio.log")
    try:
        wait_until(lambda: _answers(f"{url}/subjects"), lambda: process.log_tail())
        yield url
    finally:
        process.kill()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
