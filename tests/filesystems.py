"""`python -m tests.filesystems`: the tests of durability on real file systems, each on a volume of its own. Needs root.

ext4, XFS and Btrfs are made in files and mounted through loop devices; an overlay has its upper layer on such an ext4.
A power cut is made by copying the volume's file at once (a reflink, for which all of them lie on an XFS) after a kill:
the copy has only what the device was given, and is mounted in place of the original. Writes that a device has taken but
not flushed stay there, unlike in a real one.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from oncelog.spark.table.atomic_swap import swap
from tests.interop.durability import TOPIC, check
from tests.load import Load, create_topic
from tests.peers.oncelog_serve import OncelogServe

_HOST_BYTES: Final = 6 << 30
_VOLUME_BYTES: Final = 768 << 20
_MAKE: Final = {
    "ext4": ("mkfs.ext4", "-q"),
    "xfs": ("mkfs.xfs", "-q"),
    "btrfs": ("mkfs.btrfs", "-q"),
}
KINDS: Final = (*_MAKE, "overlay", "tmpfs")
SUITES: Final[dict[str, Sequence[str]]] = {
    "files": ("tests/conformance/test_files.py",),
    "kill -9": ("tests/interop/test_durability.py",),
    "shared tree": ("tests/interop/test_shared_tree.py",),
    "backups": ("tests/interop/cli/test_log_backup.py",),
}
"""Tests of the suite that write below ``--basetemp``."""
CALLS: Final = "calls"
POWER_CUTS: Final = "power cuts"
FULL: Final = "a volume without room"


def _run(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)


class Volume:
    """A file system of its own, mounted at ``place``."""

    def __init__(self, kind: str, host: Path, sync_policy: str = "commit") -> None:
        self.kind = kind
        self.sync_policy = sync_policy
        self._image = host / f"{kind}.img"
        self._lower = host / f"{kind}.layers"
        self.place = host / f"{kind}.mounted"
        self.place.mkdir()
        self._inner = "ext4" if kind == "overlay" else kind
        if self.has_device:
            with open(self._image, "wb") as image:
                image.truncate(_VOLUME_BYTES)
            _run(*_MAKE[self._inner], self._image)
        self._lower.mkdir()
        self.mount()

    @property
    def has_device(self) -> bool:
        """False: it is in memory, and a power cut takes it all."""
        return self.kind != "tmpfs"

    def mount(self) -> None:
        """Mount it as it is on its device."""
        if self.kind == "tmpfs":
            _run("mount", "-t", "tmpfs", "-o", f"size={_VOLUME_BYTES}", "tmpfs", self.place)
            return
        _run("mount", "-o", "loop", self._image, self._lower if self.kind == "overlay" else self.place)
        if self.kind == "overlay":
            for name in ("lower", "upper", "work"):
                (self._lower / name).mkdir(exist_ok=True)
            layers = ",".join(f"{name}dir={self._lower / name}" for name in ("lower", "upper", "work"))
            _run("mount", "-t", "overlay", "-o", layers, "overlay", self.place)

    def unmount(self) -> None:
        """Write everything to the device, and unmount it."""
        _run("umount", self.place)
        if self.kind == "overlay":
            _run("umount", self._lower)

    def cut_power(self) -> None:
        """Go on with the device's content of this moment, without anything that was only in memory."""
        copy = self._image.with_suffix(".cut")
        _run("cp", "--reflink=always", self._image, copy)
        self.unmount()
        copy.rename(self._image)
        self.mount()


@contextmanager
def host_of_volumes(directory: Path) -> Iterator[Path]:
    """An XFS, whose files can be copied at once."""
    image, place = directory / "host.img", directory / "host"
    with open(image, "wb") as file:
        file.truncate(_HOST_BYTES)
    _run(*_MAKE["xfs"], "-m", "reflink=1", image)
    place.mkdir()
    _run("mount", "-o", "loop", image, place)
    try:
        yield place
    finally:
        # Loop devices on it are released a moment after their unmounting.
        _run("umount", "--lazy", place)
        image.unlink()


def _loaded(volume: Volume, name: str, strike: Callable[[OncelogServe, Load], None], rounds: int) -> list[str]:
    """A broker under load on the volume, struck several times; the broken promises, and how much was acknowledged."""
    properties = {"log.segment.bytes": "1048576", "log.sync.policy": volume.sync_policy}
    broker = OncelogServe(volume.place / name, properties=properties, forked=True).start()
    try:
        create_topic(broker.bootstrap_servers, TOPIC, 3)
        load = Load(broker.bootstrap_servers, TOPIC, "producer", 3)
        load.start()
        try:
            for _ in range(rounds):
                load.wait_for_more()
                strike(broker, load)
            load.wait_for_more()
        finally:
            load.stop()
        return [*check(load), f"{load.count} records acknowledged"]
    finally:
        if broker.was_launched:
            broker.kill()


def power_cuts(volume: Volume, seed: int, rounds: int) -> list[str]:
    """Cut the power of a broker's volume at random moments."""
    chance = random.Random(seed)

    def strike(broker: OncelogServe, load: Load) -> None:
        time.sleep(chance.uniform(0, 0.5))
        broker.kill()
        volume.cut_power()
        broker.start()

    return _loaded(volume, "power", strike, rounds)


def full_volume(volume: Volume, rounds: int) -> list[str]:
    """Fill a broker's volume, and make room again."""

    def strike(broker: OncelogServe, load: Load) -> None:
        filler = volume.place / "filler"
        with open(filler, "wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 20))
        time.sleep(1)  # the broker meets it in between, or has room left in its last block
        filler.unlink()
        if not broker.is_running:
            broker.kill()
            broker.start()

    return _loaded(volume, "full", strike, rounds)


def calls(volume: Volume) -> list[str]:
    """The calls that not every file system has, as it answers them."""
    place = volume.place / "calls"
    (place / "a").mkdir(parents=True)
    (place / "b").mkdir()
    (place / "file").write_bytes(bytes(1 << 16))
    descriptor = os.open(place / "file", os.O_RDONLY)
    results = {
        "preadv2(RWF_NOWAIT)": lambda: os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT),
        "renameat2(RENAME_EXCHANGE)": lambda: swap(place / "a", place / "b"),
        "link": lambda: os.link(place / "file", place / "same"),
    }
    try:
        return [f"{name} {_answer(call)}" for name, call in results.items()]
    finally:
        os.close(descriptor)


def _answer(call: Callable[[], object]) -> str:
    try:
        call()
    except OSError as error:
        return os.strerror(error.errno or 0).lower()
    return "yes"


def _suite(volume: Volume, paths: Sequence[str]) -> list[str]:
    """Run tests with their directories on the volume; pytest's last lines."""
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "-p", "no:randomly", "-n", "0"]
    ran = subprocess.run(
        [*command, "--basetemp", str(volume.place / "tests"), *paths], capture_output=True, text=True, check=False
    )
    lines = ran.stdout.strip().splitlines()
    return [*(line for line in lines if line.startswith(("FAILED", "ERROR"))), lines[-1] if lines else ran.stderr]


def results_of(volume: Volume, only: Sequence[str], seed: int, rounds: int) -> Iterator[tuple[str, bool, list[str]]]:
    """Name, success and report of each suite on a volume."""
    if CALLS in only:
        yield CALLS, True, calls(volume)
    for name, paths in SUITES.items():
        if name in only:
            lines = _suite(volume, paths)
            yield name, len(lines) == 1 and "passed" in lines[0] and "failed" not in lines[0], lines
    if FULL in only:
        lines = full_volume(volume, 2)
        yield FULL, len(lines) == 1, lines
    if POWER_CUTS in only and volume.has_device:
        lines = power_cuts(volume, seed, rounds)
        yield POWER_CUTS, len(lines) == 1, lines


def main() -> int:
    """Print a line for each suite on each file system; 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=KINDS, metavar="KIND", help=", ".join(KINDS))
    names = [CALLS, *SUITES, FULL, POWER_CUTS]
    parser.add_argument("--only", action="append", choices=names, help="may be repeated; all of them without it")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--rounds", type=int, default=8, help="power cuts of each file system")
    parser.add_argument(
        "--sync-policy", default="commit", choices=("commit", "none"), help="with none, power cuts must lose records"
    )
    options = parser.parse_args()
    print(f"seed {options.seed}, Linux {os.uname().release}", flush=True)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="filesystems-") as directory, host_of_volumes(Path(directory)) as host:
        for kind in options.kinds:
            volume = Volume(kind, host, options.sync_policy)
            try:
                for name, passed, lines in results_of(volume, options.only or names, options.seed, options.rounds):
                    failed += not passed
                    print(f"{kind:8} {name:24} {'ok' if passed else 'FAILED'}: {'; '.join(lines)}", flush=True)
            finally:
                volume.unmount()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
