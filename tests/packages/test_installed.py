"""The wheel in environments of its own: without extras, with each, and with the lowest versions of what it needs.

`make test-packages` runs all; the tests marked `integration` are those that take seconds. An interpreter that this
machine lacks is a skip that names it.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from oncelog.cli.commands import COMMANDS
from oncelog.cli.support.failures import EXTRAS
from tests.packages.builds import ROOT, build
from tests.packages.environments import PYTHONS, Environment, find_python, install, variables
from tests.peers.process import free_ports
from tests.waiting import HANG_S

pytestmark = pytest.mark.slow
SMALL = ("cluster", "security", "console", "console-formats", "registry", "plots")
"""Extras without Spark."""
LARGE = ("spark", "connect", "delta", "iceberg", "demo")
PACKAGES: Mapping[str, str] = {
    **EXTRAS,
    "deltalake": "delta",
    "pyiceberg": "iceberg",
    "fastavro": "console-formats",
    "msgpack": "console-formats",
    "google": "console-formats",
    "confluent_kafka": "demo",
    "grpc": "connect",
}
"""The extra that brings each package, by the name of its import."""
BROUGHT: Mapping[str, frozenset[str]] = {
    "cluster": frozenset({"kazoo", "puresasl"}),
    "security": frozenset({"cryptography", "jwt"}),
    "console": frozenset({"starlette", "uvicorn", "jinja2", "markupsafe"}),
    "console-formats": frozenset(
        {"starlette", "uvicorn", "jinja2", "fastavro", "msgpack", "google", "pyarrow", "numpy"}
    ),
    "registry": frozenset({"fastavro", "google", "jsonschema_rs"}),
    "plots": frozenset({"matplotlib"}),
    "spark": frozenset({"pyspark", "pyarrow", "numpy", "pandas"}),
    "connect": frozenset({"pyspark", "pyarrow", "numpy", "pandas", "grpc"}),
    "delta": frozenset({"pyspark", "pyarrow", "numpy", "pandas", "deltalake"}),
    "iceberg": frozenset({"pyspark", "pyarrow", "numpy", "pandas", "pyiceberg"}),
    "demo": frozenset({"pyspark", "pyarrow", "numpy", "pandas", "confluent_kafka"}),
}
MISSING = (
    ("console", "starlette is not installed; install it with: pip install 'oncelog[console]'"),
    ("load topic --to {0}/table", "pyarrow is not installed; install it with: pip install 'oncelog[spark]'"),
    ("stream topic --to {0}/table", "pyspark is not installed; install it with: pip install 'oncelog[spark]'"),
    ("compact {0}/table", "pyspark is not installed; install it with: pip install 'oncelog[spark]'"),
    ("audit {0}", "numpy is not installed: an audit with --no-spark needs pip install numpy pyarrow, one on Spark pip"),
    ("security init {0}/secured", "cryptography is not installed; install it with: pip install 'oncelog[security]'"),
    (
        "serve --data-dir {0}/d -o zookeeper.connect=127.0.0.1:1",
        "kazoo is not installed: pip install 'oncelog[cluster]'",
    ),
    ("group list --zookeeper 127.0.0.1:1", "needs the package kazoo: pip install 'oncelog[cluster]'"),
)
"""Command lines, and the line that each prints in an installation without extras."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("dist")).wheel


@pytest.mark.integration
def test_an_installation_without_extras_works_and_names_the_missing_ones(wheel: Path, tmp_path: Path) -> None:
    installed = install(tmp_path / "env", wheel)
    check_base(installed, tmp_path)
    for line, expected in MISSING:
        done = installed.run(*line.format(tmp_path).split())
        assert done.returncode in (1, 2), line
        assert done.stdout == ""
        assert re.fullmatch(f"oncelog: .*{re.escape(expected)}.*\n", done.stderr), done.stderr


@pytest.mark.integration
def test_the_lowest_versions_of_dependencies_work(wheel: Path, tmp_path: Path) -> None:
    installed = install(tmp_path / "env", wheel, ",".join(SMALL), lowest=True)
    check_base(installed, tmp_path)
    check_imports(installed, *SMALL)
    check_console(installed)
    check_secured(installed, tmp_path)


@pytest.mark.packages
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("lowest", [False, True], ids=["newest", "lowest"])
@pytest.mark.parametrize("extras", [(), *((extra,) for extra in SMALL), SMALL], ids=lambda extras: "+".join(extras))
def test_small_extras_on_each_python(
    wheel: Path, tmp_path: Path, python: str, lowest: bool, extras: tuple[str, ...]
) -> None:
    installed = install(tmp_path / "env", wheel, ",".join(extras), python=find_python(python), lowest=lowest)
    check_imports(installed, *extras)
    if extras in ((), SMALL):
        check_base(installed, tmp_path)
    if "console" in extras:
        check_console(installed)
    if "security" in extras:
        check_secured(installed, tmp_path)


@pytest.mark.packages
@pytest.mark.parametrize("extra", LARGE)
def test_extras_with_spark(wheel: Path, tmp_path: Path, extra: str) -> None:
    installed = install(tmp_path / "env", wheel, extra)
    check_imports(installed, extra)
    done = installed.run("load", "topic", "--to", str(tmp_path / "table"), "--bootstrap-server", "127.0.0.1:1")
    assert done.returncode == 1
    assert "no broker at 127.0.0.1:1" in done.stderr


def check_imports(installed: Environment, *extras: str) -> None:
    """Every module can be imported, or lacks a package that only other extras bring."""
    script = Path(__file__).with_name("imports.py")
    done = subprocess.run(
        [installed.python, "-I", script], cwd="/", env=variables(), capture_output=True, text=True, check=True
    )
    missing = set(json.loads(done.stdout).values()) - {"pytest"}  # oncelog.testing.pytest_plugin is pytest's alone
    brought = frozenset().union(*(BROUGHT[extra] for extra in extras))
    assert missing <= set(PACKAGES) - brought
    names = ", ".join(sorted(brought | {"re2"}))
    subprocess.run([installed.python, "-I", "-c", f"import {names}"], cwd="/", env=variables(), check=True)


def check_base(installed: Environment, tmp_path: Path) -> None:
    """All help is there; a broker starts, answers, compresses, counts and stops."""
    help_text = installed.run("--help")
    assert help_text.returncode == 0, help_text.stderr
    assert all(name in help_text.stdout for name in COMMANDS)
    with serving(installed, "serve", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0") as broker:
        server = ("--bootstrap-server", broker["ready on"])
        assert installed.run("topic", "create", "t", *server).returncode == 0
        for codec in ("snappy", "zstd"):
            done = installed.run("produce", "t", "-z", codec, *server, text=f"{codec}\n" * 50)
            assert done.returncode == 0, done.stderr
        consumed = installed.run("consume", "t", "--from", "beginning", "--exit", *server)
        assert sorted(set(consumed.stdout.split())) == ["snappy", "zstd"], consumed.stderr
        assert len(consumed.stdout.splitlines()) == 100
        with urllib.request.urlopen(f"{broker['metrics on']}") as response:
            assert b"oncelog_records_in_total 100.0" in response.read()


def check_console(installed: Environment) -> None:
    """The console serves its first page, though no broker is there."""
    (port,) = free_ports(1)
    listen = f"127.0.0.1:{port}"
    command = ("console", "--listen", listen, "--bootstrap-server", "127.0.0.1:1")
    process = subprocess.Popen(
        [installed.command, *command],
        cwd="/",
        env=variables(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert f"http://{listen}/" in process.stderr.readline()
        with urllib.request.urlopen(f"http://{listen}/static/vendor/htmx.min.js") as response:
            assert response.status == 200
    finally:
        process.terminate()
        process.communicate(timeout=HANG_S)


def check_secured(installed: Environment, tmp_path: Path) -> None:
    """`security init` makes a broker's files, and its user can log in."""
    secured = tmp_path / "secured"
    (port, _) = free_ports(2)
    done = installed.run("security", "init", str(secured), "--port", str(port))
    assert done.returncode == 0, done.stderr
    with serving(installed, "serve", "--config", str(secured / "server.properties"), cwd=secured):
        config = ("--command-config", str(secured / "client.properties"))
        listed = installed.run("topic", "list", *config, "--bootstrap-server", f"localhost:{port}")
        assert listed.returncode == 0, listed.stderr


@contextlib.contextmanager
def serving(installed: Environment, *command: str, cwd: Path = Path("/")) -> Iterator[dict[str, str]]:
    """A broker, with the address behind each announcement of its first lines; its clean end is checked."""
    process = subprocess.Popen(
        [installed.command, *command, "--http", "127.0.0.1:0"],
        cwd=cwd, env=variables(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        announced: dict[str, str] = {}
        for pattern in ("metrics on", "ready on"):
            line = process.stdout.readline()
            match = re.search(rf"{pattern} (\S+)", line)
            assert match, line or process.communicate(timeout=HANG_S)
            announced[pattern] = match[1]
        yield announced
        process.terminate()
        output, errors = process.communicate(timeout=HANG_S)
        assert process.returncode == 0, errors
        assert "stopped cleanly" in output
    finally:
        process.kill()
        process.communicate(timeout=HANG_S)
