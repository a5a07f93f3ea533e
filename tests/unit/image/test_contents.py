"""The image's own files: its command line, its user, its health check, and its bill of materials."""

from __future__ import annotations

import json
import runpy
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from codegen.image import contents
from codegen.image.debian import Package
from codegen.image.python_packages import PythonPackage

from oncelog.cli.processes.broker_process import OPTIONS
from oncelog.cli.processes.command_options import read_plainly
from oncelog.cli.support.properties_file import read_properties_file
from oncelog.node.listeners.broker_settings import read_settings


def test_the_command_needs_no_typer_and_the_configuration_starts_a_broker() -> None:
    command, *arguments = contents.COMMAND
    assert command == "serve"
    options = read_plainly(OPTIONS, arguments)
    assert options is not None
    assert options["config"] == Path("/", contents.CONFIGURATION)
    settings = read_settings(read_properties_file(contents.FILES / "server.properties"))
    assert settings.data_directory == f"/{contents.DATA}"
    assert settings.listen == ("0.0.0.0", 9092)
    assert [str(endpoint) for endpoint in settings.listeners.advertised.values()] == ["PLAINTEXT://localhost:9092"]


def test_only_the_data_belongs_to_the_user() -> None:
    tree = contents.system_files("python3.11")
    owned = {path: entry.mode for path, entry in tree.items() if entry.owner}
    assert owned == {contents.DATA: 0o700, contents.CLUSTER: 0o700}
    assert all(tree[path].owner == 0 for path in ("usr/local/bin/oncelog", contents.HEALTHCHECK))
    assert f":{contents.USER}:{contents.USER}:".encode() in (tree["etc/passwd"].content or b"")
    assert contents.settings({})["Entrypoint"] == ["/usr/local/bin/oncelog"]


class _Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Health) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_health_check_is_healthy_for_200_alone(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    check = runpy.run_path(str(contents.FILES / "healthcheck.py"))["main"]
    assert check(f"{address}/health") == 0
    assert capsys.readouterr().err == ""
    for url in (f"{address}/other", "http://127.0.0.1:1/health", "nonsense"):
        assert check(url) == 1
        assert capsys.readouterr().err.startswith(f"{url} is not healthy: ")


def test_the_bill_names_each_package_once() -> None:
    packages = [Package("libc6", "2:2.36-9+deb12u1~1", "amd64", "aa", "")]
    bill = contents.bill_of_materials("1.2.3", "debian-12", packages, [PythonPackage("uvloop", "0.23.0")])
    assert [component["purl"] for component in bill["components"]] == [
        "pkg:deb/debian/libc6@2%3A2.36-9%2Bdeb12u1~1?arch=amd64&distro=debian-12",
        "pkg:pypi/uvloop@0.23.0",
    ]
    (dependencies,) = bill["dependencies"]
    assert dependencies["dependsOn"] == [component["bom-ref"] for component in bill["components"]]
    assert bill["metadata"]["component"]["version"] == "1.2.3"
    json.dumps(bill)
