"""Checks a backup against its manifest, and restores it into a new directory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from oncelog.base.private_files import DIRECTORY_MODE, private_opener
from oncelog.cli.log.backup.copying import CHUNK, INCOMPLETE, Progress, building, check_is_free, digest_of, write_all
from oncelog.cli.log.backup.manifest import BackupError, Entry, Header, Manifest
from oncelog.cli.log.backup.tree_file import skip_producer_ids

_REMEDY: Final = (
    "restore another backup; a file that is shared with earlier backups (--since) is damaged in all of them"
)


def problems_of(manifest: Manifest, progress: Progress) -> Iterator[tuple[str, str]]:
    """Path and problem of each file that is not as it was copied."""
    done = 0
    for entry in manifest.entries():
        path = manifest.backup / entry.path
        try:
            problem = _difference(entry, *digest_of(path))
        except OSError as error:
            problem = (error.strerror or str(error)).lower()
        if problem:
            yield entry.path, problem
        done += entry.size
        progress(done, manifest.bytes)


def restore(backup: Path, to: Path, progress: Progress) -> Header:
    """Copy a backup into ``to``: of one broker as its data directory, of several as the directory of ``oncelog cluster
    up``. Raises BackupError; then ``to`` is as before."""
    manifest = Manifest(backup)
    incomplete = to.with_name(to.name + INCOMPLETE)
    check_is_free(to, incomplete)
    to.parent.mkdir(parents=True, exist_ok=True)
    header = manifest.header
    alone = f"{header.brokers[0]}/" if len(header.brokers) == 1 and "/" in header.tree else ""
    with building(incomplete, to):
        done = 0
        for entry in manifest.entries():
            _copy(backup / entry.path, incomplete / entry.path.removeprefix(alone), entry)
            done += entry.size
            progress(done, manifest.bytes)
        skip_producer_ids(incomplete / header.tree.removeprefix(alone))
    return header


def _copy(source: Path, target: Path, entry: Entry) -> None:
    """Raises BackupError if the copied bytes are not those of the manifest."""
    target.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with (
        open(source, "rb", buffering=0) as read,
        open(target, "xb", buffering=0, opener=private_opener) as written,
    ):
        while data := read.read(CHUNK):
            write_all(written.fileno(), data, target)
            digest.update(data)
            size += len(data)
        os.fsync(written.fileno())
    problem = _difference(entry, size, digest.hexdigest())
    if problem:
        raise BackupError(f"{source}: {problem}: {_REMEDY}")
    os.utime(target, ns=(entry.modified_ns, entry.modified_ns))


def _difference(entry: Entry, size: int, sha256: str) -> str:
    if size != entry.size:
        return f"it has {size:,} bytes, the manifest says {entry.size:,}"
    return "" if sha256 == entry.sha256 else "its checksum is not that of the manifest"
