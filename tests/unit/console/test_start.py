"""The start of a console: what the first page does not need is not imported before it is there."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from oncelog.testing.broker import Broker

pytestmark = pytest.mark.slow
NOT_FOR_THE_FIRST_PAGE = {
    *("cryptography", "google.protobuf", "fastavro", "httpx", "kazoo", "msgpack", "numpy", "pyarrow", "pydantic"),
    *("pyspark", "rich", "sqlite3", "typer", "zstandard"),
    *(
        "oncelog.admin.acls",
        "oncelog.admin.explain.targets",
        "oncelog.admin.groups",
        "oncelog.admin.transactions.abort_marker",
    ),
    *("oncelog.cli.commands", "oncelog.cli.support.options", "oncelog.client.blocking.producer", "oncelog.mirror"),
    *("oncelog.console.audits", "oncelog.console.changes", "oncelog.console.downloads.routes"),
    *("oncelog.console.metrics.cluster_counts", "oncelog.console.records.search", "oncelog.console.streaming.sources"),
    *("oncelog.node", "oncelog.spark"),
}
FIRST_PAGE = """
import asyncio, json, sys
from oncelog.cli import main
from oncelog.cli.processes.console_process import server_of, read_console
from oncelog.console.settings import Settings

assert read_console(sys.argv[1:]) is not None
app = server_of(Settings(sys.argv[2], sample_every_s=10.0)).config.app
sent = []

async def receive():
    return {"type": "http.request", "body": b""}

async def send(message):
    sent.append(message)

path = "/overview"
scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""}
scope |= {"headers": [(b"host", b"127.0.0.1:8080")], "scheme": "http", "client": ("127.0.0.1", 1)}
asyncio.run(app(scope | {"server": ("127.0.0.1", 8080), "http_version": "1.1", "root_path": ""}, receive, send))
print(json.dumps([sent[0]["status"], [*sys.modules]]))
"""


def test_the_first_page_imports_nothing_that_it_does_not_need(broker: Broker) -> None:
    command = [sys.executable, "-c", FIRST_PAGE, "--bootstrap-servers", broker.bootstrap_servers]
    status, modules = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=600).stdout)
    assert status == 200
    loaded = {item for item in NOT_FOR_THE_FIRST_PAGE if item in modules}
    assert loaded == set()
    assert "oncelog.console.pages.overview" in modules
    assert "oncelog.console.pages.groups" not in modules
