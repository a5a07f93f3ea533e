"""``python -m codegen.image``: writes the container image into ``build/image``."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from codegen.image import contents, oci
from codegen.image.debian import Apt, Package, base_tree, closure
from codegen.image.python_packages import PLATFORMS, Compiler, dependencies, installed, wheel_tree
from codegen.image.tree import Tree, archive, file, write_directory

REQUIREMENTS: Final = contents.ROOT / "requirements" / "image.txt"
_ROOTS: Final = ("base-files", "ca-certificates", "libstdc++6")


def main() -> int:
    """Build an image for each architecture, and one layout of them all."""
    options = _parser().parse_args()
    options.architecture = options.architecture or [_output("dpkg", "--print-architecture")]
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or _output("git", "log", "-1", "--format=%ct"))
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    clear(options.to)
    with tempfile.TemporaryDirectory(prefix="oncelog-image-") as scratch:
        wheel = options.wheel or _build_wheel(Path(scratch))
        version = wheel.name.split("-")[1]
        labels = contents.labels(version, created, options.revision)
        build = _Build(Path(scratch), options.sources, wheel, version, epoch)
        images = [build.image(architecture, labels, created) for architecture in options.architecture]
    for image in images:
        path = options.to / f"oncelog-{version}-{image.architecture}.tar"
        path.write_bytes(archive(oci.loadable(image, f"oncelog:{version}"), epoch))
        print(f"{path}: {image.compressed_bytes / 1e6:.1f} MB, {image.manifest.digest}")
        for layer in image.layers:
            print(f"  {len(layer.blob.content) / 1e6:5.1f} MB  {layer.title}")
    write_directory(oci.layout(images, version, labels), options.to / "oci")
    print(f"{options.to / 'oci'}: an OCI layout, {', '.join(image.architecture for image in images)}")
    return 0


class _Build:
    """Common parts of images of several architectures."""

    def __init__(self, scratch: Path, sources: Path | None, wheel: Path, version: str, epoch: int) -> None:
        self._scratch = scratch
        self._sources = sources
        self._wheel = wheel
        self._version = version
        self._epoch = epoch
        self._own = _output("dpkg", "--print-architecture")
        self._bases: dict[str, tuple[Tree, Sequence[Package]]] = {}
        self._compiler: Compiler | None = None

    def image(self, architecture: str, labels: dict[str, str], created: str) -> oci.Image:
        base, packages = self._base(architecture)
        if self._compiler is None:
            self._compiler = Compiler(self._base(self._own)[0], self._scratch / "compiler")
        (python,) = (path.rpartition("/")[2] for path in base if re.fullmatch(r"usr/bin/python3\.\d+", path))
        prefix = f"usr/local/lib/{python}/dist-packages"
        needed = dependencies(REQUIREMENTS, architecture, python.removeprefix("python"))
        own = wheel_tree(self._wheel)
        library = {path: entry for path, entry in base.items() if path.startswith(f"usr/lib/{python}/")}
        base |= self._compiler.byte_code(library, "")
        needed |= self._compiler.byte_code(needed, prefix)
        own |= self._compiler.byte_code(own, prefix)
        bill = contents.bill_of_materials(self._version, _distribution(base), packages, installed(needed | own))
        last = {f"{prefix}/{path}": entry for path, entry in own.items()} | {
            contents.BILL: file(oci.json_blob("", bill).content)
        }
        layers = (
            oci.layer(base | contents.system_files(python), f"Debian packages: {python} and its libraries"),
            oci.layer({f"{prefix}/{path}": entry for path, entry in needed.items()}, "dependencies of oncelog"),
            oci.layer(last, f"oncelog {self._version}", self._epoch),
        )
        return oci.image(architecture, layers, contents.settings(labels), created)

    def _base(self, architecture: str) -> tuple[Tree, Sequence[Package]]:
        if architecture not in self._bases:
            apt = Apt(architecture, self._scratch / f"apt-{architecture}", self._sources)
            apt.update()
            default = apt.describe(["python3"])["python3"].dependencies
            python = re.findall(r"\bpython3\.\d+\b", default)[0]
            packages = closure([python, *_ROOTS], apt.describe)
            self._bases[architecture] = base_tree(apt.download(packages)), packages
        return self._bases[architecture]


def clear(target: Path) -> None:
    """Make ``target`` an empty directory. Raises SystemExit if it holds anything but an earlier image."""
    names = {path.name for path in target.iterdir()} if target.exists() else set()
    others = [name for name in names if name != "oci" and not re.fullmatch(r"oncelog-.+\.tar", name)]
    if others or (names and not (target / "oci" / "oci-layout").exists()):
        raise SystemExit(f"--to {target}: the directory holds other files; name a new or an empty one")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)


def _distribution(base: Tree) -> str:
    """For example debian-12, of the packages' ``os-release``."""
    text = (base["usr/lib/os-release"].content or b"").decode()
    fields = dict(re.findall(r'^(ID|VERSION_ID)="?([^"\n]*)"?$', text, re.MULTILINE))
    return f"{fields['ID']}-{fields['VERSION_ID']}"


def _build_wheel(scratch: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(scratch / "dist")]
    subprocess.run(command, cwd=contents.ROOT, check=True, capture_output=True)
    (wheel,) = (scratch / "dist").glob("*.whl")
    return wheel


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=contents.ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m codegen.image",
        description="Writes the container image from Debian packages and the wheel. SOURCE_DATE_EPOCH is its time; "
        "default: that of the last commit.",
    )
    parser.add_argument("--to", type=Path, default=contents.ROOT / "build" / "image", help="the directory to write")
    parser.add_argument(
        "--architecture",
        action="append",
        choices=tuple(PLATFORMS),
        help="Debian's name; may be repeated; default: this machine's",
    )
    parser.add_argument("--sources", type=Path, help="sources of packages in apt's format; default: this machine's")
    parser.add_argument("--wheel", type=Path, help="a wheel that was built before; default: one of this checkout")
    parser.add_argument("--revision", help="the commit, for the label")
    return parser


if __name__ == "__main__":
    sys.exit(main())
