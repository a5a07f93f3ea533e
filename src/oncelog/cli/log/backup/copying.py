"""Copies noted files into a directory that appears under its name only when it is whole and durable."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from oncelog.base.private_files import DIRECTORY_MODE, private_opener
from oncelog.cli.log.backup.manifest import MANIFEST, BackupError, Entry, Header, ManifestWriter
from oncelog.cli.log.backup.noted_files import UNOPENED, BrokerFiles, NotedFile
from oncelog.cli.log.backup.tree_file import TreeSnapshot

INCOMPLETE: Final = ".incomplete"
CHUNK: Final = 1 << 20
Progress = Callable[[int, int | None], None]


@dataclass
class Made:
    header: Header
    held_ms: int
    """The longest time for which a broker was held; 0 if none ran."""
    missing: list[int]
    """Recorded brokers that are down and not in the backup."""
    files: int = 0
    bytes: int = 0
    copied_bytes: int = 0
    shared_files: int = 0


def check_is_free(to: Path, incomplete: Path) -> None:
    """Raises BackupError."""
    if os.path.lexists(to) and not (to.is_dir() and not any(to.iterdir())):
        raise BackupError(f"{to} exists and is not an empty directory: name another")
    if to.is_mount():
        raise BackupError(f"{to} is a mount point, which cannot appear at once: name a directory in it")
    if os.path.lexists(incomplete):
        raise BackupError(f"{incomplete} is left of an interrupted run: remove it, or name another directory")


@contextmanager
def building(incomplete: Path, to: Path) -> Iterator[None]:
    """Create ``incomplete`` for the body; afterwards sync it and name it ``to``, or remove it after an error."""
    incomplete.mkdir(mode=DIRECTORY_MODE)
    try:
        yield
        for walked in os.walk(incomplete):
            sync_directory(walked[0])
        incomplete.rename(to)
    except BaseException:
        shutil.rmtree(incomplete, ignore_errors=True)
        raise
    sync_directory(to.parent)


def sync_directory(path: str | Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass
class Copier:
    target: Path
    since: Path | None
    previous: dict[str, Entry]
    progress: Progress
    _written: list[Path] = field(default_factory=list)

    def copy(self, brokers: Sequence[BrokerFiles], tree: TreeSnapshot, made: Made) -> None:
        """Copy everything noted; the manifest is complete only when all files are durable."""
        total, done = sum(note.size for broker in brokers for note in broker.notes.values()), 0
        manifest = ManifestWriter(self.target / MANIFEST, made.header)
        for broker in brokers:
            root = str(broker.properties.node_id)
            (self.target / root).mkdir(mode=DIRECTORY_MODE)
            # The files that are not open come first: they may be gone soon.
            for path, note in sorted(broker.notes.items(), key=lambda item: (item[1].descriptor != UNOPENED, item[0])):
                manifest.add(self._copy(f"{root}/{path}", broker, note, made))
                done += note.size
                self.progress(done, total)
        tree_copy = self.target / made.header.tree
        tree.copy_to(tree_copy)
        self._written.append(tree_copy)
        manifest.add(Entry(made.header.tree, *digest_of(tree_copy), time.time_ns(), ()))
        for written in self._written:
            _sync_file(written)
        manifest.finish()
        made.files, made.bytes = manifest.files, manifest.bytes

    def _copy(self, path: str, broker: BrokerFiles, note: NotedFile, made: Made) -> Entry:
        target = self.target / path
        target.parent.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        previous = self.previous.get(path)
        unchanged = (note.size, note.modified_ns, list(note.source))
        if previous is not None and (previous.size, previous.modified_ns, list(previous.source)) == unchanged:
            assert self.since is not None
            try:
                os.link(self.since / path, target, follow_symlinks=False)
            except OSError:
                pass  # another file system, too many links, or the earlier file is gone: it is copied
            else:
                made.shared_files += 1
                return previous
        with broker.opened(note) as descriptor:
            size, digest = _write_copy(note, descriptor, target)
        os.utime(target, ns=(note.modified_ns, note.modified_ns))
        self._written.append(target)
        made.copied_bytes += size
        return Entry(path, size, digest, note.modified_ns, note.source)


def _write_copy(note: NotedFile, descriptor: int, target: Path) -> tuple[int, str]:
    """Copy the first ``note.size`` bytes; returns their number and SHA-256. Raises BackupError."""
    digest, position = hashlib.sha256(), 0
    with open(target, "xb", buffering=0, opener=private_opener) as file:
        while position < note.size:
            data = os.pread(descriptor, min(CHUNK, note.size - position), position)
            if not data:
                if note.is_log():
                    raise BackupError(f"{note.path} was cut while it was copied: run the command again")
                break  # a file of names or indexes, rewritten since; the broker rebuilds it
            write_all(file.fileno(), data, target)
            digest.update(data)
            position += len(data)
    return position, digest.hexdigest()


def write_all(descriptor: int, data: bytes, target: Path) -> None:
    """Raises BackupError with the file's name."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError as error:
        raise BackupError(f"cannot write {target}: {(error.strerror or str(error)).lower()}") from None


def digest_of(path: Path) -> tuple[int, str]:
    """Size and SHA-256 of a file."""
    digest, size = hashlib.sha256(), 0
    with open(path, "rb", buffering=0) as file:
        while data := file.read(CHUNK):
            digest.update(data)
            size += len(data)
    return size, digest.hexdigest()


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
