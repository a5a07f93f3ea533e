"""Python packages of an image: the locked dependencies for another platform, the wheel, and their byte code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from codegen.image.tree import Entry, Tree, file, read_directory, without, write_directory

PLATFORMS: Final = {"amd64": "x86_64-manylinux_2_36", "arm64": "aarch64-manylinux_2_36"}
"""The platform tags of wheels by Debian's name of an architecture; Debian 12 has glibc 2.36."""
BUILT: Final = "pure-sasl"
"""The one dependency without a wheel; it is pure Python."""
_OF_THE_INSTALLER: Final = (
    "bin",
    "*.dist-info/INSTALLER",
    "*.dist-info/REQUESTED",
    "*.dist-info/direct_url.json",
    "*.dist-info/uv_*.json",
)


class PythonPackage(NamedTuple):
    name: str
    version: str


def dependencies(requirements: Path, architecture: str, python_version: str) -> Tree:
    """The packages of a lock file with hashes, as installed for a platform; no script of the installer."""
    uv = Path(sys.executable).with_name("uv")
    with tempfile.TemporaryDirectory(prefix="oncelog-image-") as scratch:
        command: list[str | Path] = [uv, "--quiet", "pip", "install", "--target", scratch, "--link-mode", "copy"]
        command += ["--python-platform", PLATFORMS[architecture], "--python-version", python_version]
        command += ["--require-hashes", "-r", requirements]
        command += ["--only-binary", ":all:", "--no-binary", BUILT, "--no-build-isolation"]
        subprocess.run(command, check=True)
        return with_true_records(without(read_directory(Path(scratch)), _OF_THE_INSTALLER))


def with_true_records(tree: Tree) -> Tree:
    """The tree with ``RECORD`` files that name only files of the tree."""
    result = dict(tree)
    for path, entry in tree.items():
        if path.endswith(".dist-info/RECORD") and entry.content is not None:
            lines = entry.content.decode().splitlines()
            kept = sorted(line for line in lines if line.partition(",")[0].strip('"') in tree)
            result[path] = file("".join(f"{line}\n" for line in kept))
    return result


def wheel_tree(wheel: Path) -> Tree:
    """The files of a wheel without data files and scripts."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: file(archive.read(name)) for name in sorted(archive.namelist()) if not name.endswith("/")}


def installed(tree: Mapping[str, Entry]) -> list[PythonPackage]:
    """The packages of a tree, by their metadata."""
    packages = []
    for path, entry in tree.items():
        if path.endswith(".dist-info/METADATA") and entry.content is not None:
            fields = dict(re.findall(r"^(Name|Version): (\S+)$", entry.content.decode(), re.MULTILINE))
            packages.append(PythonPackage(fields["Name"].lower().replace("_", "-"), fields["Version"]))
    return sorted(packages)


class Compiler:
    """The Python of Debian's packages for this machine, in a directory; it runs through its own loader."""

    def __init__(self, base: Tree, directory: Path) -> None:
        write_directory(base, directory)
        (loader,) = directory.glob("usr/lib/*-linux-gnu*/ld-linux*")
        (python,) = directory.glob("usr/bin/python3.*")
        self._home = directory / "usr"
        self._command: list[str | Path] = [loader, "--library-path", loader.parent, python]

    def byte_code(self, tree: Mapping[str, Entry], prefix: str) -> Tree:
        """Compiled files beside the modules of a tree, which lies at ``prefix``; their times do not matter."""
        with tempfile.TemporaryDirectory(prefix="oncelog-image-") as scratch:
            write_directory({path: entry for path, entry in tree.items() if path.endswith(".py")}, Path(scratch))
            command: list[str | Path] = [
                *self._command,
                "-B",
                "-S",
                "-m",
                "compileall",
                "-q",
                "--invalidation-mode",
                "unchecked-hash",
            ]
            command += ["-s", scratch, "-p", f"/{prefix}", scratch]
            environ = {"PYTHONHOME": str(self._home), "PYTHONHASHSEED": "0", "PATH": os.defpath}
            subprocess.run(command, env=environ, check=True)
            return {path: entry for path, entry in read_directory(Path(scratch)).items() if path.endswith(".pyc")}
