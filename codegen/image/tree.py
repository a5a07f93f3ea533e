"""Files of an image's layer, in memory, and the archive of a layer: sorted, owned by root, with one time for all."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

DIRECTORY_MODE: Final = 0o755


class Entry(NamedTuple):
    """A file (``content``), a symbolic link (``target``), or else a directory."""

    mode: int = DIRECTORY_MODE
    content: bytes | None = None
    target: str | None = None
    owner: int = 0

    @property
    def is_directory(self) -> bool:
        return self.content is None and self.target is None


Tree = dict[str, Entry]
"""Entries by their path in the image, without a leading slash."""


def file(text: str | bytes, *, executable: bool = False) -> Entry:
    content = text.encode() if isinstance(text, str) else text
    return Entry(0o755 if executable else 0o644, content=content)


def link(target: str) -> Entry:
    return Entry(0o777, target=target)


def archive(tree: Mapping[str, Entry], mtime: int = 0) -> bytes:
    """The tar archive of a tree; directories that only paths name are added."""
    parents = {str(parent): Entry() for path in tree for parent in PurePosixPath(path).parents if str(parent) != "."}
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, entry in sorted({**parents, **tree}.items()):
            tar.addfile(_header(path, entry, mtime), io.BytesIO(entry.content or b""))
    return output.getvalue()


def _header(path: str, entry: Entry, mtime: int) -> tarfile.TarInfo:
    header = tarfile.TarInfo(path)
    header.mode = entry.mode
    header.mtime = mtime
    header.uid = header.gid = entry.owner
    if entry.target is not None:
        header.type, header.linkname = tarfile.SYMTYPE, entry.target
    elif entry.content is None:
        header.type = tarfile.DIRTYPE
    else:
        header.size = len(entry.content)
    return header


def read_archive(data: bytes) -> Tree:
    """Files and links of a package's archive. Hard links become files; a device is refused by a ValueError."""
    tree: Tree = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for header in tar:
            path = header.name.removeprefix("./")
            if header.issym():
                tree[path] = link(header.linkname)
            elif header.isfile() or header.islnk():
                content = tar.extractfile(header)
                assert content is not None
                tree[path] = file(content.read(), executable=bool(header.mode & 0o100))
            elif not header.isdir():
                raise ValueError(f"{header.name} is neither a file, a link nor a directory")
    return tree


def read_directory(root: Path) -> Tree:
    """The files below ``root``."""
    return {
        path.relative_to(root).as_posix(): file(path.read_bytes(), executable=bool(path.stat().st_mode & 0o100))
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def write_directory(tree: Mapping[str, Entry], root: Path) -> None:
    """Write files and links below ``root``; absolute links stay as they are."""
    for path, entry in sorted(tree.items()):
        place = root / path
        if entry.is_directory:
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if entry.target is not None:
            place.symlink_to(entry.target)
        elif entry.content is not None:
            place.write_bytes(entry.content)
            place.chmod(entry.mode)


def without(tree: Mapping[str, Entry], patterns: Iterable[str]) -> Tree:
    """The entries that no pattern matches, nor is above them; ``*`` matches within one name."""
    parts = (re.escape(pattern).replace(r"\*", "[^/]*") for pattern in patterns)
    dropped = re.compile(f"(?:{'|'.join(parts)})(?:/.*)?")
    return {path: entry for path, entry in tree.items() if not dropped.fullmatch(path)}
