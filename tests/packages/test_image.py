"""The container image: built twice, and run without a daemon; `make test-packages`.

Packages come from Debian and PyPI. tests/unit/image has the parts that need neither.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import oncelog
from tests.packages.builds import ROOT
from tests.packages.containers import ENGINES, unpack
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.packages,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("apt-get") is None, reason="the image is made of Debian packages: no apt-get"),
]
MOST_COMPRESSED_MB = 80
_MACHINES = {"amd64": 62, "arm64": 183}
"""The numbers of ELF files."""


def build(target: Path, *architectures: str, umask: int = 0o022, zone: str = "UTC") -> Path:
    words = [word for architecture in architectures for word in ("--architecture", architecture)]
    command = [sys.executable, "-m", "codegen.image", "--to", target, *words]
    environ = {**os.environ, "TZ": zone, "SOURCE_DATE_EPOCH": "1700000000"}
    done = subprocess.run(command, cwd=ROOT, env=environ, umask=umask, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image for this machine."""
    return build(tmp_path_factory.mktemp("image") / "first")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images for both architectures."""
    return build(tmp_path_factory.mktemp("both") / "second", *_MACHINES, umask=0o077, zone="Pacific/Chatham")


def test_two_builds_are_equal_and_small(built: Path, both: Path) -> None:
    (archive,) = built.glob("*.tar")
    assert archive.read_bytes() == (both / archive.name).read_bytes()
    for path in both.glob("*.tar"):
        assert path.stat().st_size < MOST_COMPRESSED_MB * 1_000_000
    assert {path.name for path in both.glob("*.tar")} == {
        f"oncelog-{oncelog.__version__}-{architecture}.tar" for architecture in _MACHINES
    }


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is not installed")
@pytest.mark.parametrize("architecture", _MACHINES)
def test_every_program_is_of_the_architecture_and_finds_its_libraries(
    both: Path, tmp_path: Path, architecture: str
) -> None:
    root = tmp_path / "root"
    config = unpack(both, root, architecture)
    assert config["architecture"] == architecture
    programs = dict(_programs(root, _MACHINES[architecture]))
    names = {path.name for path in root.rglob("*.so*")}
    assert len(programs) > 50
    assert {library for needed in programs.values() for library in needed} <= names


def _programs(root: Path, machine: int) -> Iterator[tuple[Path, list[str]]]:
    """ELF files, each with the names of its libraries."""
    for path in root.rglob("*"):
        if path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as file:
            head = file.read(20)
        if head.startswith(b"\x7fELF"):
            assert struct.unpack("<H", head[18:20]) == (machine,), path
            lines = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=True).stdout
            yield path, [line.rpartition("[")[2].rstrip("]") for line in lines.splitlines() if "(NEEDED)" in line]


def test_an_image_says_what_it_contains(built: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    unpack(built, root)
    bill = json.loads((root / "usr/share/sbom/oncelog-image.cdx.json").read_bytes())
    names = {component["name"] for component in bill["components"]}
    assert {"libc6", "libssl3", "base-files", "uvloop", "oncelog", "starlette", "kazoo", "cryptography"} <= {
        name.removesuffix("t64") for name in names
    }
    packages = {path.name for path in (root / "var/lib/dpkg/status.d").iterdir()}
    debian = {component["name"] for component in bill["components"] if component["purl"].startswith("pkg:deb/")}
    assert packages == debian
    for name in packages:
        assert (root / "usr/share/doc" / name).exists(), f"{name} has no copyright file"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_container_serves_stops_cleanly_and_keeps_its_data(built: Path, tmp_path: Path, engine: str) -> None:
    with ENGINES[engine](built, tmp_path, {"KAFKA_NUM_PARTITIONS": "3"}) as container:
        wait_until(lambda: container.is_healthy, container.output)
        container.oncelog("topic", "create", "orders")
        assert len(json.loads(container.oncelog("topic", "describe", "orders", "--json"))[0]["partitions"]) == 3
        container.oncelog("produce", "orders", text="a\nb\n")
        assert sorted(container.oncelog("consume", "orders", "--from", "beginning", "--exit").split()) == ["a", "b"]
        program = "import os; print(os.getuid(), os.getgid(), os.getgroups(), os.access('/usr', os.W_OK))"
        assert container.run("/usr/bin/python3", "-c", program).stdout == "10001 10001 [] False\n"
        attempt = container.run("/usr/bin/python3", "-c", "open('/tmp/x', 'w')")
        assert "Read-only file system" in attempt.stderr
        container.signal(signal.SIGSTOP)
        assert not container.is_healthy
        container.signal(signal.SIGCONT)
        wait_until(lambda: container.is_healthy, container.output)
        container.signal(signal.SIGTERM)
        assert container.wait() == 0
        assert "oncelog stopped cleanly" in container.output()
    with ENGINES[engine](built, tmp_path, {}) as container:
        assert sorted(container.oncelog("consume", "orders", "--from", "beginning", "--exit").split()) == ["a", "b"]
