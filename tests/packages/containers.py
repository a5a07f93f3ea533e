"""Ways to run the image on this machine without a daemon: `unshare` with the image's files, and podman."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from codegen.image import contents
from codegen.image.oci import Blob

from tests.waiting import HANG_S, wait_until

_INSIDE: Final = """
set -e
root=$1 data=$2 user=$3
shift 3
ip link set lo up
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount --bind "$data" "$root/var/lib/oncelog"
mount -o remount,bind,ro "$root"
exec setpriv --no-new-privs chroot --userspec="$user:$user" --groups= "$root" "$@"
"""
"""A container by hand: namespaces of its own, a root that is read-only, one volume, and no rights."""
_ONE_HIERARCHY: Final = """
for mount in /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do
    ! mountpoint -q "$mount" || umount "$mount"
done
exec "$@"
"""
"""crun refuses control groups of both versions at once; here it sees the first version alone."""


class Container(ABC):
    """A running container."""

    @abstractmethod
    def run(self, *command: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command inside as its user."""

    @abstractmethod
    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the first process."""

    @abstractmethod
    def wait(self) -> int:
        """The exit code of the first process, once it ends."""

    @abstractmethod
    def output(self) -> str:
        """Everything that it printed."""

    @property
    def is_healthy(self) -> bool:
        return self.run(f"/{contents.HEALTHCHECK}").returncode == 0

    def oncelog(self, *words: str, text: str = "") -> str:
        """Run a command of oncelog that has to end well."""
        done = self.run(*contents.ENTRYPOINT, *words, text=text)
        assert done.returncode == 0, done.stderr + self.output()
        return done.stdout


class _Unshared(Container):
    def __init__(self, process: subprocess.Popen[bytes], log: Path, settings: Mapping[str, Any]) -> None:
        self.process = process
        self._log = log
        self._settings = settings
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_until(lambda: process.poll() is not None or children.read_text(), "unshare starts")
        assert process.poll() is None, self.output()
        self._pid = int(children.read_text().split()[0])
        wait_until(lambda: "ready on" in self.output() or process.poll() is not None, self.output)

    def run(self, *command: str, text: str = "") -> subprocess.CompletedProcess[str]:
        user = self._settings["User"].partition(":")[0]
        enter = ["nsenter", "--target", str(self._pid), "--mount", "--net", "--pid", "--root", "--wdns=/"]
        enter += ["--setuid", user, "--setgid", user, *command]
        environ = environment_of(self._settings)
        return subprocess.run(enter, input=text, env=environ, capture_output=True, text=True, check=False)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._pid, number)

    def wait(self) -> int:
        return self.process.wait(HANG_S)

    def output(self) -> str:
        return self._log.read_text("utf-8")


class _OfPodman(Container):
    def __init__(self, podman: Sequence[str], name: str) -> None:
        self._podman = podman
        self._name = name
        wait_until(lambda: "ready on" in self.output(), self.output)

    def run(self, *command: str, text: str = "") -> subprocess.CompletedProcess[str]:
        words = [*self._podman, "exec", "--interactive", self._name, *command]
        return subprocess.run(words, input=text, capture_output=True, text=True, check=False)

    def signal(self, number: signal.Signals) -> None:
        self._call("kill", "--signal", number.name, self._name)

    def wait(self) -> int:
        return int(self._call("wait", self._name).stdout)

    def output(self) -> str:
        done = self._call("logs", self._name)
        return done.stdout + done.stderr

    def _call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self._podman, *words], capture_output=True, text=True, check=True)


@contextlib.contextmanager
def unshared(built: Path, directory: Path, environment: Mapping[str, str]) -> Iterator[Container]:
    """The image's command in namespaces of its own. ``directory`` keeps the volume."""
    if os.geteuid() != 0 or shutil.which("nsenter") is None:
        pytest.skip("unshare needs root, and nsenter of util-linux")
    root, data = directory / "root", directory / "data"
    config = unpack(built, root)
    data.mkdir(mode=0o700, exist_ok=True)
    os.chown(data, contents.USER, contents.USER)
    settings = config["config"]
    words = ["sh", "-c", _INSIDE, "sh", str(root), str(data), str(contents.USER), *settings["Entrypoint"]]
    command = ["unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child", *words]
    log = directory / "output"
    with log.open("wb") as output:
        environ = {**environment_of(settings), **environment}
        process = subprocess.Popen([*command, *settings["Cmd"]], env=environ, stdout=output, stderr=output)
    try:
        yield _Unshared(process, log, settings)
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def in_podman(built: Path, directory: Path, environment: Mapping[str, str]) -> Iterator[Container]:
    """The loaded image in podman, with its state and the volume below ``directory``; nothing is left elsewhere."""
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed")
    podman = ["unshare", "--mount", "sh", "-c", _ONE_HIERARCHY, "sh"] if os.geteuid() == 0 else []
    podman += ["podman", "--root", str(directory / "storage"), "--runroot", str(directory / "run")]
    podman += ["--log-level", "fatal"]
    (archive,) = built.glob("*.tar")
    loaded = subprocess.run([*podman, "load", "-i", archive], capture_output=True, text=True, check=True).stdout
    image = loaded.rpartition("Loaded image")[2].split()[-1]
    words = ["run", "--detach", "--name", "oncelog", "--network", "none", "--read-only", "--read-only-tmpfs=false"]
    words += ["--cap-drop", "all", "--security-opt", "no-new-privileges", "--volume", "data:/var/lib/oncelog"]
    words += ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
    words += [word for key, value in environment.items() for word in ("--env", f"{key}={value}")]
    try:
        done = subprocess.run([*podman, *words, image], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        yield _OfPodman(podman, "oncelog")
    finally:
        subprocess.run([*podman, "rm", "--force", "oncelog"], capture_output=True, check=False)
        subprocess.run(["umount", directory / "storage" / "overlay"], capture_output=True, check=False)


def environment_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """The variables of the image; its path, and the machine's for the programs that lead into the container."""
    variables = dict(word.split("=", 1) for word in settings["Env"])
    return {**variables, "PATH": f"{variables['PATH']}:/usr/sbin:/bin:/sbin"}


ENGINES: Final = {"unshare": unshared, "podman": in_podman}


def unpack(built: Path, root: Path, architecture: str | None = None) -> dict[str, Any]:
    """Write the files of the layout's image below ``root``, unless they are there; returns its configuration. Without
    an architecture the layout has one image."""

    def read(descriptor: Mapping[str, Any]) -> bytes:
        content = (layout / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
        assert Blob("", content).digest == descriptor["digest"]
        return content

    layout = built / "oci"
    (outer,) = json.loads((layout / "index.json").read_bytes())["manifests"]
    images = json.loads(read(outer))["manifests"]
    (image,) = (image for image in images if architecture in (None, image["platform"]["architecture"]))
    manifest = json.loads(read(image))
    if not root.exists():
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(read(layer)), mode="r:gz") as tar:
                tar.extractall(root, numeric_owner=True, filter="fully_trusted")
    config: dict[str, Any] = json.loads(read(manifest["config"]))
    return config
